#include <thread>

#include <gtest/gtest.h>

#include "evaluator/evaluation_limit.h"
#include "evaluator/evaluation_watchdog.h"

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

TEST(EvaluationLimitTest, DoesNotCountPauses) {
  ManualClock clock;
  EvaluationLimit limit(clock, 0.001, {});
  limit.pause(1ms);
  clock.advance(2ms);
  EXPECT_TRUE(limit.check("batch").ok());
  clock.advance(1ns);
  EXPECT_EQ(limit.check("batch").code(), StatusCode::kTimedOut);
}

TEST(EvaluationLimitTest, EndsPauseOnStop) {
  ManualClock clock;
  std::stop_source stop;
  EvaluationLimit limit(clock, 1, stop.get_token());
  std::jthread stopper([&] { stop.request_stop(); });
  limit.pause(1h);
  EXPECT_EQ(limit.check("batch").code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace stoker::evaluator
