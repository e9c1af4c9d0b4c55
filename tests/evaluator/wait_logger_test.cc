#include "evaluator/wait_logger.h"

#include <gtest/gtest.h>

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;

TEST(WaitLoggerTest, LogsOnReasonChangeThenEveryTenMinutes) {
  ManualClock clock;
  WaitLogger notice(clock);
  EXPECT_EQ(notice.find_reminder("a checkpoint"), 0ns);
  clock.advance(9min);
  EXPECT_FALSE(notice.find_reminder("a checkpoint").has_value());
  clock.advance(1min);
  EXPECT_EQ(notice.find_reminder("a checkpoint"), 10min);
  EXPECT_FALSE(notice.find_reminder("a checkpoint").has_value());
  clock.advance(10min);
  EXPECT_EQ(notice.find_reminder("a checkpoint"), 20min);
  EXPECT_EQ(notice.find_reminder("the trainer"), 0ns);
}

TEST(WaitLoggerTest, RestartsIntervalAfterWork) {
  ManualClock clock;
  WaitLogger notice(clock);
  (void)notice.find_reminder("a checkpoint");
  clock.advance(9min);
  notice.over();
  clock.advance(9min);
  EXPECT_FALSE(notice.find_reminder("a checkpoint").has_value());
  clock.advance(1min);
  EXPECT_EQ(notice.find_reminder("a checkpoint"), 10min);
}

}  // namespace
}  // namespace stoker::evaluator
