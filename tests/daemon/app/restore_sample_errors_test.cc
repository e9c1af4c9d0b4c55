#include "daemon/app/restore_sample_errors.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::app {
namespace {

class RestoreSampleErrorsTest : public ::testing::Test {
 protected:
  supervisor::SampleErrorHistory so_far(const checkpoint::Manifest* maybe_saved) const {
    const auto before = restore_sample_errors(default_file_system(), list(), maybe_saved);
    EXPECT_TRUE(before.ok()) << before.status().to_string();
    return before.ok() ? *before : supervisor::SampleErrorHistory();
  }
  std::string list() const { return directory_ / "sample_errors.jsonl"; }
  void put(const std::string& text) const { test::write_whole(list(), text); }

  test::TemporaryDirectory directory_;
};

constexpr const char* kThree =
    "{\"step\":1,\"ticket\":1,\"sample\":4}\n{\"step\":2,\"ticket\":2,\"sample\":4}\n"
    "{\"step\":3,\"ticket\":5,\"sample\":4}\n";

TEST_F(RestoreSampleErrorsTest, UsesCountOfCheckpoint) {
  put(kThree);
  const checkpoint::Manifest saved{.step = 2, .next_ticket = 4, .sample_errors = 9};
  const auto before = so_far(&saved);
  EXPECT_EQ(before.count, 9u) << "also of those that are on no list";
  EXPECT_EQ(before.lines, 2u);
  EXPECT_EQ(before.step, 2u);
}

TEST_F(RestoreSampleErrorsTest, CountsFileRecordsWhenCheckpointHasNoCount) {
  put(kThree);
  const checkpoint::Manifest saved{.step = 2, .next_ticket = 4};
  EXPECT_EQ(so_far(&saved).count, 2u);
  put("");
  EXPECT_EQ(so_far(&saved).count, 0u);
}

TEST_F(RestoreSampleErrorsTest, ClearsFileWithoutCheckpoint) {
  put(kThree);
  EXPECT_EQ(so_far(nullptr).count, 0u);
  EXPECT_EQ(*read_file(list(), 100), "");
}

TEST_F(RestoreSampleErrorsTest, TruncatesListsOfFormerRanksThatCanBeRead) {
  const run::RunLayout layout(directory_ / "run");
  for (const int rank : {2, 3}) std::filesystem::create_directories(layout.rank_dir(rank));
  std::filesystem::create_directories(run::RunLayout(layout.rank_dir(2)).sample_errors_file());
  const std::string readable = run::RunLayout(layout.rank_dir(3)).sample_errors_file();
  test::write_whole(readable, kThree);
  const checkpoint::Manifest saved{.step = 2, .next_ticket = 4};
  EXPECT_EQ(truncate_lists_of_former_ranks(default_file_system(), layout, 2, &saved), 2u);
  EXPECT_EQ(std::string(kThree).rfind(*read_file(readable, 1000), 0), 0u);
}

}  // namespace
}  // namespace stoker::app
