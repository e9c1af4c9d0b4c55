#include "evaluator/attempt_counts.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::evaluator {
namespace {

class AttemptCountsTest : public ::testing::Test {
 protected:
  AttemptCounts open() const { return AttemptCounts::open(default_file_system(), file_); }

  test::TemporaryDirectory scratch_;
  const std::string file_ = scratch_ / "attempts.json";
};

TEST_F(AttemptCountsTest, PersistsAttemptBeforeItEnds) {
  EXPECT_EQ(open().begin(20, "aa"), 1);
  EXPECT_EQ(open().begin(20, "aa"), 2);
  EXPECT_EQ(open().count(20, "aa"), 2);
  EXPECT_EQ(open().count(20, "bb"), 0) << "another checkpoint of the same step";
}

TEST_F(AttemptCountsTest, UndoesStoppedAttemptAndRemovesFinishedCheckpoint) {
  AttemptCounts attempts = open();
  attempts.begin(20, "aa");
  attempts.begin(20, "aa");
  attempts.undo(20, "aa");
  EXPECT_EQ(open().count(20, "aa"), 1);
  attempts.remove(20, "aa");
  EXPECT_EQ(open().count(20, "aa"), 0);
}

TEST_F(AttemptCountsTest, RemovesCountsOfDeletedCheckpoints) {
  AttemptCounts attempts = open();
  attempts.begin(20, "aa");
  attempts.begin(40, "bb");
  attempts.retain_only({40, 60});
  EXPECT_EQ(open().count(20, "aa"), 0);
  EXPECT_EQ(open().count(40, "bb"), 1);
}

TEST_F(AttemptCountsTest, ResetsCountsOnInvalidFile) {
  for (const char* const text : {"", "{", "{}", "[1]", "[{\"step\":1}]", "[[]]"}) {
    std::ofstream(file_) << text;
    AttemptCounts attempts = open();
    EXPECT_EQ(attempts.count(1, ""), 0) << text;
    EXPECT_EQ(attempts.begin(1, "aa"), 1) << text;
    EXPECT_EQ(open().count(1, "aa"), 1) << text;
  }
}

}  // namespace
}  // namespace stoker::evaluator
