#include "daemon/train/schedule.h"

#include <gtest/gtest.h>

namespace stoker::train {
namespace {

config::SchedulerConfig schedule(config::SchedulerVariant schedule, uint64_t warmup) {
  return {.schedule = schedule, .warmup_steps = warmup};
}
const config::CosineScheduler kCosine{.min_lr = 0.1};

TEST(SchedulerTest, WarmsUpFromFirstStepToFullRate) {
  const auto config = schedule(config::ConstantScheduler{}, 4);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 0, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 3, 100), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 99, 100), 2.0);
}

TEST(SchedulerTest, ReachesMidpointAndMinimumWithCosine) {
  const auto config = schedule(kCosine, 10);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.1, 10, 110), 1.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.1, 60, 110), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.1, 110, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.1, 500, 110), 0.1);
}

// The rate that PyTorch's CosineAnnealingLR and LinearLR end with, for eta_min = lr / 10, end_factor = 0.1.
TEST(SchedulerTest, EndsWithTenthOfRateByDefault) {
  for (const config::SchedulerVariant& variant :
       {config::SchedulerVariant(config::CosineScheduler{}),
        config::SchedulerVariant(config::LinearScheduler{})}) {
    EXPECT_DOUBLE_EQ(learning_rate(schedule(variant, 0), 0.01, 100, 100), 0.001);
    EXPECT_DOUBLE_EQ(learning_rate(schedule(variant, 0), 0.01, 0, 100), 0.01);
    EXPECT_DOUBLE_EQ(learning_rate(schedule(variant, 0), 1e-5, 100, 100), 1e-6);
  }
}

TEST(SchedulerTest, DecaysEvenlyWithLinear) {
  const auto config = schedule(config::LinearScheduler{.min_lr = 0.1}, 0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.1, 25, 100), 0.85);
  EXPECT_NEAR(learning_rate(config, 1.1, 100, 100), 0.1, 1e-15);
}

TEST(SchedulerTest, MultipliesAtEachIntervalWithStep) {
  const auto config = schedule(config::StepScheduler{.step_size = 10, .gamma = 0.5}, 5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 14, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 15, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 35, 100), 0.125);
}

TEST(SchedulerTest, RemainsInWarmUpOnShortRun) {
  const auto config = schedule(kCosine, 100);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 9, 10), 0.1);
}

}  // namespace
}  // namespace stoker::train
