#include "daemon/feeder/restart_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::feeder {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Deaths one after another; the status of the last, or of the first that is one too many.
Status die(RestartBudget& budget, int times, RestartBudget::Death death,
           std::chrono::nanoseconds between = 0ns, uint64_t batches_between = 0) {
  death.cause = "signal 11";
  for (int i = 0; i < times; ++i) {
    if (const Status status = budget.note_death(death); !status.ok()) return status;
    death.now += between;
    death.published += batches_between;
  }
  return {};
}

TEST(RestartBudget, FaultRow31SoManyDeathsInVainEndTheRun) {
  RestartBudget budget(1000);
  EXPECT_TRUE(die(budget, 19, {}).ok());
  const Status last = die(budget, 1, {});
  EXPECT_EQ(last.code(), Code::kInternal);
  EXPECT_THAT(last.message(), HasSubstr("20 without one new batch; the last by signal 11"));
  EXPECT_EQ(budget.deaths(), 20u);
}

TEST(RestartBudget, ANewBatchPardonsTheDeathsBefore) {
  RestartBudget budget(1000);
  EXPECT_TRUE(die(budget, 19, {}).ok());
  EXPECT_TRUE(die(budget, 19, {.published = 1}).ok());
  EXPECT_FALSE(die(budget, 1, {.published = 1}).ok());
}

TEST(RestartBudget, ASampleInQuarantineDoesToo) {
  RestartBudget budget(1000);
  EXPECT_TRUE(die(budget, 19, {}).ok());
  EXPECT_TRUE(die(budget, 1, {.gets_further = true}).ok());
  EXPECT_TRUE(die(budget, 18, {}).ok());
}

TEST(RestartBudget, ReadersThatEndByThemselvesAreTriedThreeTimes) {
  RestartBudget budget(1000);
  EXPECT_TRUE(die(budget, 2, {.by_itself = true}).ok());
  EXPECT_FALSE(die(budget, 1, {.by_itself = true}).ok());
}

TEST(RestartBudget, MoreThanSoManyAMinuteEndTheRunWhateverTheyAchieve) {
  RestartBudget budget(30);
  const Status status = die(budget, 100, {}, 1s, 1);
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(),
              HasSubstr("31 within a minute, more than feed.max_restarts_per_minute = 30"));
}

TEST(RestartBudget, AsManySpreadOverALongerTimeDoNot) {
  RestartBudget budget(30);
  EXPECT_TRUE(die(budget, 1000, {}, 3s, 1).ok());
}

}  // namespace
}  // namespace stoker::feeder
