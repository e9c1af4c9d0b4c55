#include "evaluator/evaluation_watchdog.h"

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

}  // namespace
}  // namespace stoker::evaluator
