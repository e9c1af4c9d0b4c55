#include "evaluator/attempts.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::evaluator {
namespace {

class AttemptsTest : public ::testing::Test {
 protected:
  Attempts open() const { return Attempts::open(real_files(), file_); }

  test::TemporaryDirectory scratch_;
  const std::string file_ = scratch_ / "attempts.json";
};

TEST_F(AttemptsTest, ATryIsKnownToTheNextStartBeforeItHasEnded) {
  EXPECT_EQ(open().begin(20, "aa"), 1);
  EXPECT_EQ(open().begin(20, "aa"), 2);
  EXPECT_EQ(open().count(20, "aa"), 2);
  EXPECT_EQ(open().count(20, "bb"), 0) << "another checkpoint of the same step";
}

TEST_F(AttemptsTest, AStoppedTryDoesNotCountAndASettledCheckpointIsForgotten) {
  Attempts attempts = open();
  attempts.begin(20, "aa");
  attempts.begin(20, "aa");
  attempts.take_back(20, "aa");
  EXPECT_EQ(open().count(20, "aa"), 1);
  attempts.forget(20, "aa");
  EXPECT_EQ(open().count(20, "aa"), 0);
}

TEST_F(AttemptsTest, CheckpointsThatAreGoneAreForgotten) {
  Attempts attempts = open();
  attempts.begin(20, "aa");
  attempts.begin(40, "bb");
  attempts.keep_only({40, 60});
  EXPECT_EQ(open().count(20, "aa"), 0);
  EXPECT_EQ(open().count(40, "bb"), 1);
}

TEST_F(AttemptsTest, WhatIsNotUnderstoodIsCountedAnew) {
  for (const char* const text : {"", "{", "{}", "[1]", "[{\"step\":1}]", "[[]]"}) {
    std::ofstream(file_) << text;
    Attempts attempts = open();
    EXPECT_EQ(attempts.count(1, ""), 0) << text;
    EXPECT_EQ(attempts.begin(1, "aa"), 1) << text;
    EXPECT_EQ(open().count(1, "aa"), 1) << text;
  }
}

}  // namespace
}  // namespace stoker::evaluator
