#include "daemon/daemon_app/bad_samples_so_far.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::daemon_app {
namespace {

class BadSamplesSoFar : public ::testing::Test {
 protected:
  feeder::BadSamplesBefore so_far(const checkpoint::Manifest* maybe_saved) const {
    const auto before = bad_samples_so_far(real_files(), list(), maybe_saved);
    EXPECT_TRUE(before.ok()) << before.status().to_string();
    return before.ok() ? *before : feeder::BadSamplesBefore();
  }
  std::string list() const { return directory_ / "sample_errors.jsonl"; }
  void put(const std::string& text) const { test::write_whole(list(), text); }

  test::TemporaryDirectory directory_;
};

constexpr const char* kThree =
    "{\"step\":1,\"ticket\":1,\"sample\":4}\n{\"step\":2,\"ticket\":2,\"sample\":4}\n"
    "{\"step\":3,\"ticket\":5,\"sample\":4}\n";

TEST_F(BadSamplesSoFar, AreThoseThatTheCheckpointCounts) {
  put(kThree);
  const checkpoint::Manifest saved{.step = 2, .ticket = 4, .maybe_bad_samples = 9};
  const auto before = so_far(&saved);
  EXPECT_EQ(before.count, 9u) << "also of those that are on no list";
  EXPECT_EQ(before.lines, 2u);
  EXPECT_EQ(before.step, 2u);
}

TEST_F(BadSamplesSoFar, AreThoseOfTheListWhereAnEarlierReleaseDidNotCount) {
  put(kThree);
  const checkpoint::Manifest saved{.step = 2, .ticket = 4};
  EXPECT_EQ(so_far(&saved).count, 2u);
  put("");
  EXPECT_EQ(so_far(&saved).count, 0u);
}

TEST_F(BadSamplesSoFar, AreNoneWhereTheRunBegins) {
  put(kThree);
  EXPECT_EQ(so_far(nullptr).count, 0u);
  EXPECT_EQ(*read_file(list(), 100), "");
}

}  // namespace
}  // namespace stoker::daemon_app
