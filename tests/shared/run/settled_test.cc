#include "shared/run/settled.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::run {
namespace {

std::string line(uint64_t step, const std::string& outcome, const std::string& manifest = "m") {
  return R"({"step":)" + std::to_string(step) + R"(,"manifest_sha256":")" + manifest +
         R"(","outcome":")" + outcome + R"(","attempts":1,"reason":"","wall_time":"w"})";
}

TEST(Settled, EveryFinalOutcomeSettlesThisVeryCheckpoint) {
  Settled settled;
  uint64_t step = 0;
  for (const char* const outcome : {"evaluated", "corrupt", "superseded", "failed"})
    settled.add_line(line(++step, outcome));
  for (uint64_t each = 1; each <= 4; ++each) {
    EXPECT_EQ(settled.fate(each, "m"), each == 1 ? Fate::kEvaluated : Fate::kGivenUp);
    EXPECT_EQ(settled.fate(each, "another manifest"), Fate::kOpen);
    EXPECT_EQ(settled.is_corrupt(each, "m"), each == 2);
  }
  EXPECT_EQ(settled.fate(5, "m"), Fate::kOpen);
  EXPECT_EQ(settled.evaluated_steps(), std::set<uint64_t>{1});
}

TEST(Settled, WhatIsNotUnderstoodSettlesNothing) {
  Settled settled;
  for (const char* const text :
       {"", "{}", "[]", "not json", R"({"step":-1,"manifest_sha256":"m","outcome":"failed"})",
        R"({"step":1,"manifest_sha256":7,"outcome":"failed"})"})
    settled.add_line(text);
  settled.add_line(line(1, "looked at"));
  EXPECT_EQ(settled.fate(1, "m"), Fate::kOpen);
}

TEST(Settled, ALineNeedsNoMoreThanItsCheckpointAndOutcome) {
  Settled settled;
  settled.add_line(R"({"step":1,"manifest_sha256":"m","outcome":"corrupt"})");
  EXPECT_TRUE(settled.is_corrupt(1, "m"));
}

TEST(Settled, TheLastLineAboutACheckpointCounts) {
  Settled settled;
  settled.add_line(line(1, "corrupt"));
  settled.add_line(line(1, "evaluated"));
  EXPECT_FALSE(settled.is_corrupt(1, "m"));
}

TEST(Settled, IsReadFromTheLedgerWithoutItsTornLastLine) {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "outcomes.jsonl";
  EXPECT_TRUE(read_settled(path).ok()) << "no ledger is an empty one";
  test::write_whole(path,
                    line(1, "evaluated") + "\n" + line(2, "failed") + "\n" + line(3, "evaluated"));
  const auto settled = read_settled(path);
  ASSERT_TRUE(settled.ok()) << settled.status().to_string();
  EXPECT_EQ(settled->fate(1, "m"), Fate::kEvaluated);
  EXPECT_EQ(settled->fate(2, "m"), Fate::kGivenUp);
  EXPECT_EQ(settled->fate(3, "m"), Fate::kOpen);
}

}  // namespace
}  // namespace stoker::run
