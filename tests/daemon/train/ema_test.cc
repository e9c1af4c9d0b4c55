// train.ema_*: the decays and averages of timm's ModelEmaV3 and of the formula of TensorFlow's
// ExponentialMovingAverage, from tests/parity/make_recipe_numbers.py.
#include "daemon/train/ema.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "tests/shared/task/echo.h"

namespace stoker::train {
namespace {

using config::EmaWarmup;

struct Weights : task::Echo {
  Weights() { weight = register_parameter("weight", at::zeros({3})); }
  void set_step(double step) const {
    const at::NoGradGuard no_grad;
    weight.copy_(at::tensor({1.0F, -2.0F, 0.5F}) + step * at::tensor({0.5F, 0.25F, -1.0F}));
  }
  at::Tensor weight;
};

// Sets the parameters of each step and updates the average, on the host, or as captured work does.
at::Tensor average_of(const config::TrainConfig& config, bool is_on_device) {
  Weights model;
  model.set_step(0);
  EmaWeights average(model, config);
  if (is_on_device) average.use_device_weight();
  for (uint64_t step = 1; step <= 8; ++step) {
    model.set_step(static_cast<double>(step));
    average.set_step(step);
    average.update();
  }
  return average.averages().front().second;
}

void expect_average(const config::TrainConfig& config, const std::vector<float>& expected) {
  const at::Tensor found = average_of(config, false);
  EXPECT_TRUE(at::allclose(found, at::tensor(expected), 1e-6, 1e-6)) << found;
  EXPECT_TRUE(at::equal(average_of(config, true), found)) << "with a weight on the device";
}

TEST(EmaTest, HasDecaysOfTimmWithPower) {
  const config::TrainConfig config{.ema_decay = 0.7, .ema_warmup = EmaWarmup::kPower};
  const std::vector<std::pair<uint64_t, double>> expected{
      {1, 0},           {2, 0.370039475}, {3, 0.519250143}, {5, 0.658004811},
      {6, 0.697146568}, {7, 0.7},         {100, 0.7}};
  for (const auto& [step, decay] : expected)
    EXPECT_NEAR(*ema_decay(config, step), decay, 1e-9) << step;
}

TEST(EmaTest, HasDecaysOfTensorFlowWithNumUpdates) {
  const config::TrainConfig config{.ema_decay = 0.9, .ema_warmup = EmaWarmup::kNumUpdates};
  EXPECT_DOUBLE_EQ(*ema_decay(config, 1), 2.0 / 11);
  EXPECT_DOUBLE_EQ(*ema_decay(config, 79), 80.0 / 89);
  EXPECT_DOUBLE_EQ(*ema_decay(config, 81), 0.9);
}

TEST(EmaTest, HasAverageOfTimmWithPower) {
  expect_average({.ema_decay = 0.7, .ema_warmup = EmaWarmup::kPower},
                 {4.00580168F, -0.497099191F, -5.51160336F});
}

TEST(EmaTest, HasAverageOfTensorFlowEverySecondStep) {
  expect_average({.ema_decay = 0.4, .ema_every_steps = 2, .ema_warmup = EmaWarmup::kNumUpdates},
                 {4.36857143F, -0.315714286F, -6.23714286F});
}

TEST(EmaTest, AveragesAtMultiplesOfEverySteps) {
  const config::TrainConfig config{.ema_decay = 0.5, .ema_every_steps = 3};
  for (uint64_t step = 1; step <= 7; ++step)
    EXPECT_EQ(ema_decay(config, step).has_value(), step == 3 || step == 6) << step;
}

TEST(EmaTest, LeavesAverageOfSkippedStepWithWarmup) {
  Weights model;
  model.set_step(0);
  EmaWeights average(model, {.ema_decay = 0.5, .ema_warmup = EmaWarmup::kNumUpdates});
  average.use_device_weight();
  const at::Tensor before = average.averages().front().second.clone();
  model.set_step(std::numeric_limits<double>::quiet_NaN());
  average.set_step(1);
  average.update(at::ones({}));
  EXPECT_TRUE(at::equal(average.averages().front().second, before));
}

}  // namespace
}  // namespace stoker::train
