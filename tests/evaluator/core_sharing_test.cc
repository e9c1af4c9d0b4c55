#include "evaluator/core_sharing.h"

#include <gtest/gtest.h>

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

class CoreSharingTest : public ::testing::Test {
 protected:
  nanoseconds pause_after(nanoseconds running, nanoseconds runnable) {
    total_.running += running;
    total_.runnable += runnable;
    return sharing_.pause_due();
  }

  CoreTime total_{5s, 3s};  // before the evaluation
  CoreSharing sharing_{[this] { return total_; }};
};

TEST_F(CoreSharingTest, NeverPausesWithFreeCore) {
  for (int batch = 0; batch < 100; ++batch) EXPECT_EQ(pause_after(200ms, 2ms), 0ns);
}

TEST_F(CoreSharingTest, ComputesFifthOfTimeWhileItWaitsForCores) {
  nanoseconds busy{0};
  nanoseconds paused{0};
  for (int batch = 0; batch < 10; ++batch) {
    busy += 300ms;
    paused += pause_after(100ms, 200ms);
  }
  EXPECT_NEAR(static_cast<double>(busy.count()) / static_cast<double>((busy + paused).count()),
              CoreSharing::kShare, 1e-6);
}

TEST_F(CoreSharingTest, StopsPausingWhenCoresAreFreeAgain) {
  EXPECT_GT(pause_after(100ms, 50ms), 0ns);
  EXPECT_EQ(pause_after(100ms, 0ms), 0ns);
}

TEST_F(CoreSharingTest, JudgesShortBatchesTogether) {
  EXPECT_EQ(pause_after(9ms, 10ms), 0ns);
  EXPECT_EQ(pause_after(1ms, 0ms), 4 * 20ms);
}

TEST_F(CoreSharingTest, ReadsTimesOfCallingThread) {
  const CoreTime before = read_core_time();
  if (before.running == 0ns) GTEST_SKIP() << "this kernel does not count the time of threads";
  CoreTime after = before;
  for (volatile int i = 0; after.running < before.running + 2ms; after = read_core_time())
    for (int k = 0; k < 1000; ++k) i = i + 1;
  EXPECT_GE(after.runnable, before.runnable);
}

}  // namespace
}  // namespace stoker::evaluator
