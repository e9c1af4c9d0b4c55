#include "daemon/supervisor/restart_limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Deaths one after another; the status of the last, or of the first that is one too many.
Status die(RestartLimiter& budget, int times, RestartLimiter::Crash crash,
           std::chrono::nanoseconds between = 0ns, uint64_t batches_between = 0) {
  crash.cause = "signal 11";
  for (int i = 0; i < times; ++i) {
    if (const Status status = budget.record_crash(crash); !status.ok()) return status;
    crash.now += between;
    crash.published += batches_between;
  }
  return {};
}

TEST(RestartLimiterTest, FailsAfterTwentyCrashesWithoutProgress) {
  RestartLimiter budget(1000);
  EXPECT_TRUE(die(budget, 19, {}).ok());
  const Status last = die(budget, 1, {});
  EXPECT_EQ(last.code(), StatusCode::kInternal);
  EXPECT_THAT(last.message(), HasSubstr("20 without one new batch; the last by signal 11"));
  EXPECT_EQ(budget.crashes(), 20u);
}

TEST(RestartLimiterTest, ResetsCrashCountOnNewBatch) {
  RestartLimiter budget(1000);
  EXPECT_TRUE(die(budget, 19, {}).ok());
  EXPECT_TRUE(die(budget, 19, {.published = 1}).ok());
  EXPECT_FALSE(die(budget, 1, {.published = 1}).ok());
}

TEST(RestartLimiterTest, ResetsCrashCountOnQuarantinedSample) {
  RestartLimiter budget(1000);
  EXPECT_TRUE(die(budget, 19, {}).ok());
  EXPECT_TRUE(die(budget, 1, {.made_progress = true}).ok());
  EXPECT_TRUE(die(budget, 18, {}).ok());
}

TEST(RestartLimiterTest, FailsAfterThreeVoluntaryExits) {
  RestartLimiter budget(1000);
  EXPECT_TRUE(die(budget, 2, {.is_unprovoked = true}).ok());
  EXPECT_FALSE(die(budget, 1, {.is_unprovoked = true}).ok());
}

TEST(RestartLimiterTest, FailsAbovePerMinuteLimitDespiteProgress) {
  RestartLimiter budget(30);
  const Status status = die(budget, 100, {}, 1s, 1);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(),
              HasSubstr("31 within a minute, more than feed.max_restarts_per_minute = 30"));
}

TEST(RestartLimiterTest, AllowsSameCrashCountOverLongerTime) {
  RestartLimiter budget(30);
  EXPECT_TRUE(die(budget, 1000, {}, 3s, 1).ok());
}

}  // namespace
}  // namespace stoker::supervisor
