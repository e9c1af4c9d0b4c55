#include "evaluator/evaluation_limit.h"

#include <gtest/gtest.h>

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;

TEST(EvaluationWatchdogTest, ReportsOverdueOnlyAfterTimeoutPlusBatchTime) {
  ManualClock clock;
  EvaluationWatchdog guard(clock);
  clock.advance(24h);
  EXPECT_FALSE(guard.is_overdue()) << "none runs";
  guard.begin(1h);
  clock.advance(1h + EvaluationWatchdog::kMaxBatchDuration);
  EXPECT_FALSE(guard.is_overdue()) << "its own limit comes first";
  clock.advance(1ns);
  EXPECT_TRUE(guard.is_overdue());
  guard.end();
  EXPECT_FALSE(guard.is_overdue());
}

TEST(EvaluationWatchdogTest, DoesNotCountPauses) {
  ManualClock clock;
  EvaluationWatchdog watchdog(clock);
  watchdog.extend(1h);
  EXPECT_FALSE(watchdog.is_overdue()) << "no evaluation is running";
  watchdog.begin(1h);
  watchdog.extend(30min);
  clock.advance(90min + EvaluationWatchdog::kMaxBatchDuration);
  EXPECT_FALSE(watchdog.is_overdue());
  clock.advance(1ns);
  EXPECT_TRUE(watchdog.is_overdue());
}

TEST(EvaluationLimitTest, DoesNotCountPauses) {
  ManualClock clock;
  EvaluationLimit limit(clock, 1, {});
  limit.extend(2s);
  clock.advance(3s);
  EXPECT_TRUE(limit.check("batch").ok());
  clock.advance(1ns);
  EXPECT_EQ(limit.check("batch").code(), StatusCode::kTimedOut);
}

}  // namespace
}  // namespace stoker::evaluator
