#include "daemon/train/schedule.h"

#include <gtest/gtest.h>

namespace stoker::train {
namespace {

config::ScheduleConfig schedule(config::ScheduleKind kind, uint64_t warmup) {
  config::ScheduleConfig config;
  config.kind = kind;
  config.warmup_steps = warmup;
  config.min_lr = 0.1;
  return config;
}

TEST(Schedule, WarmsUpFromTheFirstStepToTheFullRate) {
  const auto config = schedule(config::ScheduleKind::kConstant, 4);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 0, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 3, 100), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 99, 100), 2.0);
}

TEST(Schedule, CosineIsHalfWayInTheMiddleAndArrivesAtTheEnd) {
  const auto config = schedule(config::ScheduleKind::kCosine, 10);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.1, 10, 110), 1.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.1, 60, 110), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.1, 110, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.1, 500, 110), 0.1);
}

TEST(Schedule, LinearFallsEvenly) {
  const auto config = schedule(config::ScheduleKind::kLinear, 0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.1, 25, 100), 0.85);
  EXPECT_NEAR(learning_rate(config, 1.1, 100, 100), 0.1, 1e-15);
}

TEST(Schedule, StepMultipliesAtEachMultiple) {
  auto config = schedule(config::ScheduleKind::kStep, 5);
  config.every_steps = 10;
  config.factor = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 14, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 15, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 35, 100), 0.125);
}

TEST(Schedule, ARunShorterThanItsWarmUpStaysInIt) {
  const auto config = schedule(config::ScheduleKind::kCosine, 100);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 9, 10), 0.1);
}

}  // namespace
}  // namespace stoker::train
