#include "evaluator/wait_notice.h"

#include <gtest/gtest.h>

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;

TEST(WaitNotice, SaysItWhenTheReasonChangesAndThenAfterALongTime) {
  ManualClock clock;
  WaitNotice notice(clock);
  EXPECT_EQ(notice.maybe_due("a checkpoint"), 0ns);
  clock.advance(9min);
  EXPECT_FALSE(notice.maybe_due("a checkpoint").has_value());
  clock.advance(1min);
  EXPECT_EQ(notice.maybe_due("a checkpoint"), 10min);
  EXPECT_FALSE(notice.maybe_due("a checkpoint").has_value());
  clock.advance(10min);
  EXPECT_EQ(notice.maybe_due("a checkpoint"), 20min);
  EXPECT_EQ(notice.maybe_due("the trainer"), 0ns);
}

TEST(WaitNotice, AfterSomethingWasDoneTheTimeCountsAnew) {
  ManualClock clock;
  WaitNotice notice(clock);
  (void)notice.maybe_due("a checkpoint");
  clock.advance(9min);
  notice.over();
  clock.advance(9min);
  EXPECT_FALSE(notice.maybe_due("a checkpoint").has_value());
  clock.advance(1min);
  EXPECT_EQ(notice.maybe_due("a checkpoint"), 10min);
}

}  // namespace
}  // namespace stoker::evaluator
