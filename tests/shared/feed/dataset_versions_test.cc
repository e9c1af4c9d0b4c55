#include "shared/feed/dataset_versions.h"

#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::feed {
namespace {

using ::testing::HasSubstr;

const DatasetVersions kHistory{{.start = {0, 0}, .samples = 40, .fingerprint = "aa"},
                               {.start = {30, 3}, .samples = 64, .fingerprint = "bb"},
                               {.start = {46, 4}, .samples = 70, .fingerprint = "cc"}};

TEST(DatasetVersionsTest, RoundTripsThroughFile) {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "dataset_versions.jsonl";
  const auto none = read_dataset_versions(path);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
  ASSERT_TRUE(write_dataset_versions(path, kHistory).ok());
  const auto read = read_dataset_versions(path);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, kHistory);
}

TEST(DatasetVersionsTest, FindsVersionOfTicket) {
  for (const auto& [ticket, fingerprint] : std::vector<std::pair<uint64_t, std::string>>{
           {0, "aa"}, {29, "aa"}, {30, "bb"}, {45, "bb"}, {46, "cc"}, {1'000'000, "cc"}})
    EXPECT_EQ(version_at(kHistory, ticket).fingerprint, fingerprint) << ticket;
  EXPECT_EQ(index_dir_for("run/index", kHistory[0]), "run/index");
  EXPECT_EQ(index_dir_for("run/index", kHistory[1]), "run/index/version-30");
}

TEST(DatasetVersionsTest, ReportsCorruptLine) {
  const std::string first = R"({"start_ticket":0,"epoch":0,"samples":4,"fingerprint":"a"})";
  for (const std::string second :
       {"x", "[]", "{}", R"({"start_ticket":-1,"epoch":0,"samples":4,"fingerprint":"a"})",
        R"({"start_ticket":0,"epoch":0,"samples":4,"fingerprint":"a"})",
        R"({"start_ticket":9,"epoch":0,"samples":4,"fingerprint":5})"}) {
    const auto parsed =
        parse_dataset_versions(first + "\n" + second + "\n", "dataset_versions.jsonl");
    ASSERT_FALSE(parsed.ok()) << second;
    EXPECT_EQ(parsed.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(parsed.status().message(), HasSubstr("dataset_versions.jsonl:2: "));
  }
}

TEST(DatasetVersionsTest, DetectsRefreshableConfigs) {
  config::Config config;
  config.data["train"].source = config::Concat{{"a", "b"}};
  config.data["a"].source = config::TextDataset{.path = "a", .sequence = {}};
  config.data["b"].source = config::TextDataset{.path = "b", .sequence = {}};
  EXPECT_FALSE(is_refreshable(config));
  std::get<config::TextDataset>(config.data["b"].source).refresh = config::Refresh::kEpoch;
  EXPECT_TRUE(is_refreshable(config));
  EXPECT_FALSE(refreshes_immediately(config));
  std::get<config::TextDataset>(config.data["a"].source).refresh = config::Refresh::kImmediate;
  EXPECT_TRUE(refreshes_immediately(config));
}

}  // namespace
}  // namespace stoker::feed
