#include "shared/feed/growth_history.h"

#include <unistd.h>

#include <filesystem>
#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::feed {
namespace {

using ::testing::HasSubstr;

const GrowthHistory kHistory{{.began = {0, 0}, .samples = 40, .fingerprint = "aa"},
                             {.began = {30, 3}, .samples = 64, .fingerprint = "bb"},
                             {.began = {46, 4}, .samples = 70, .fingerprint = "cc"}};

TEST(GrowthHistory, IsReadAsItWasWritten) {
  std::string folder = ::testing::TempDir() + "stoker-growth-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/dataset_versions.jsonl";
  const auto none = read_growth(path);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
  ASSERT_TRUE(write_growth(path, kHistory).ok());
  const auto read = read_growth(path);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, kHistory);
}

TEST(GrowthHistory, SaysWhatATicketWasTrainedOn) {
  for (const auto& [ticket, fingerprint] : std::vector<std::pair<uint64_t, std::string>>{
           {0, "aa"}, {29, "aa"}, {30, "bb"}, {45, "bb"}, {46, "cc"}, {1'000'000, "cc"}})
    EXPECT_EQ(state_at(kHistory, ticket).fingerprint, fingerprint) << ticket;
  EXPECT_EQ(index_dir_of("run/index", kHistory[0]), "run/index");
  EXPECT_EQ(index_dir_of("run/index", kHistory[1]), "run/index/version-30");
}

TEST(GrowthHistory, DamageIsNamedWithItsLine) {
  const std::string first = R"({"start_ticket":0,"epoch":0,"samples":4,"fingerprint":"a"})";
  for (const std::string second :
       {"x", "[]", "{}", R"({"start_ticket":-1,"epoch":0,"samples":4,"fingerprint":"a"})",
        R"({"start_ticket":0,"epoch":0,"samples":4,"fingerprint":"a"})",
        R"({"start_ticket":9,"epoch":0,"samples":4,"fingerprint":5})"}) {
    const auto parsed = parse_growth(first + "\n" + second + "\n", "dataset_versions.jsonl");
    ASSERT_FALSE(parsed.ok()) << second;
    EXPECT_EQ(parsed.status().code(), Code::kCorrupt);
    EXPECT_THAT(parsed.status().message(), HasSubstr("dataset_versions.jsonl:2: "));
  }
}

TEST(GrowthHistory, KnowsWhichConfigurationsGrow) {
  config::Config config;
  config.data["train"].source = config::Concat{{"a", "b"}};
  config.data["a"].source = config::TextDataset{.path = "a", .sequence = {}};
  config.data["b"].source = config::TextDataset{.path = "b", .sequence = {}};
  EXPECT_FALSE(grows(config));
  std::get<config::TextDataset>(config.data["b"].source).refresh = config::Refresh::kEpoch;
  EXPECT_TRUE(grows(config));
  EXPECT_FALSE(grows_at_once(config));
  std::get<config::TextDataset>(config.data["a"].source).refresh = config::Refresh::kImmediate;
  EXPECT_TRUE(grows_at_once(config));
}

}  // namespace
}  // namespace stoker::feed
