#include "daemon/train/remaining_time.h"

#include <gtest/gtest.h>

namespace stoker {
namespace {

TEST(RemainingTimeTest, IsMeanOfWindowAndNotLastInterval) {
  RemainingTime time;
  EXPECT_EQ(time.seconds(1000), 0);
  // 10 steps in 20 ms, then 10 in 380 ms, in turns: 20 ms per step.
  for (int i = 0; i < 100; ++i) time.add(10, i % 2 == 0 ? 0.02 : 0.38);
  EXPECT_NEAR(time.seconds(1000), 20, 1e-9);
  time.add(10, 0.02);
  EXPECT_NEAR(time.seconds(1000), 20, 0.3);
}

TEST(RemainingTimeTest, ForgetsStepsBeforeWindow) {
  RemainingTime time;
  for (int i = 0; i < 100; ++i) time.add(1, 10);  // slow
  for (int i = 0; i < 1300; ++i) time.add(10, 0.1);
  EXPECT_NEAR(time.seconds(1000), 10, 1e-9);
  // A step that is longer than the window is all that is known.
  time.add(1, 500);
  EXPECT_NEAR(time.seconds(2), 1000, 1e-9);
}

}  // namespace
}  // namespace stoker
