// scheduler reduce_on_plateau: the learning rates of torch.optim.lr_scheduler.ReduceLROnPlateau of PyTorch 2.11 after
// each of 20 values, from lr = 0.5, with 10 digits (tests/parity/make_recipe_numbers.py).
#include "daemon/train/plateau.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/train/schedule.h"

namespace stoker::train {
namespace {

using config::ReduceOnPlateauScheduler;
using config::ThresholdMode;

const std::vector<double> kValues{1,   0.9, 0.91, 0.8995, 0.95, 0.7,  0.71, 0.72, 0.705, 0.6999,
                                  0.8, NAN, 0.9,  0.9,    0.9,  0.65, 0.7,  0.7,  0.7,   0.7};

struct TorchPlateau {
  const char* name;
  ReduceOnPlateauScheduler config;
  bool is_larger_better;
  std::vector<double> rates;
};

const std::vector<TorchPlateau> kTorchPlateaus{
    {"Patience", {.patience = 2}, false, {0.5,   0.5,   0.5,   0.5,   0.5,    0.5,   0.5,
                                          0.5,   0.05,  0.05,  0.05,  0.05,   0.005, 0.005,
                                          0.005, 0.005, 0.005, 0.005, 0.0005, 0.0005}},
    {"AbsoluteThreshold",
     {.factor = 0.5, .patience = 1, .threshold = 0.01, .threshold_mode = ThresholdMode::kAbs},
     false,
     {0.5,      0.5,      0.5,      0.25,      0.25,      0.25,      0.25,
      0.125,    0.125,    0.0625,   0.0625,    0.03125,   0.03125,   0.015625,
      0.015625, 0.015625, 0.015625, 0.0078125, 0.0078125, 0.00390625}},
    {"Cooldown",
     {.factor = 0.3, .patience = 0, .threshold = 0.05, .cooldown = 2},
     false,
     {0.5,    0.5,    0.15,    0.15,    0.15,    0.15,    0.045,    0.045,    0.045,    0.0135,
      0.0135, 0.0135, 0.00405, 0.00405, 0.00405, 0.00405, 0.001215, 0.001215, 0.001215, 0.0003645}},
    {"MinLr", {.patience = 0, .min_lr = 0.1}, false, {0.5, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1,
                                                      0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1,
                                                      0.1, 0.1, 0.1, 0.1, 0.1, 0.1}},
    {"LargerIsBetter",
     {.factor = 0.5, .patience = 1},
     true,
     {0.5,        0.5,        0.25,        0.25,        0.125,        0.125,       0.0625,
      0.0625,     0.03125,    0.03125,     0.015625,    0.015625,     0.0078125,   0.0078125,
      0.00390625, 0.00390625, 0.001953125, 0.001953125, 0.0009765625, 0.0009765625}},
    {"LargerByAbsoluteThreshold",
     {.patience = 0, .threshold = 0.1, .threshold_mode = ThresholdMode::kAbs, .cooldown = 1},
     true,
     {0.5,   0.05,  0.05,  0.005, 0.005, 0.0005, 0.0005, 5e-05, 5e-05, 5e-06,
      5e-06, 5e-07, 5e-07, 5e-08, 5e-08, 5e-09,  5e-09,  5e-09, 5e-09, 5e-09}},
};

class TorchPlateauTest : public ::testing::TestWithParam<TorchPlateau> {};

TEST_P(TorchPlateauTest, HasRatesOfPyTorch) {
  const TorchPlateau& row = GetParam();
  ASSERT_EQ(row.rates.size(), kValues.size());
  config::SchedulerConfig scheduler{.schedule = row.config, .warmup_steps = 0};
  auto& config = std::get<ReduceOnPlateauScheduler>(scheduler.schedule);
  Plateau plateau;
  for (size_t i = 0; i < kValues.size(); ++i) {
    if (plateau.add(config, kValues[i], row.is_larger_better) && can_reduce(config, 0.5))
      ++config.num_reductions;
    EXPECT_NEAR(learning_rate(scheduler, 0.5, i, 20), row.rates[i], 1e-10 * row.rates[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Options, TorchPlateauTest, ::testing::ValuesIn(kTorchPlateaus),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(PlateauTest, AveragesLossesOfStepsThatHaveOne) {
  Plateau plateau;
  EXPECT_FALSE(plateau.take_mean_loss());
  plateau.add_losses(6, 2);
  plateau.add_losses(NAN, 0);  // all steps of a record were skipped
  plateau.add_losses(3, 1);
  EXPECT_EQ(plateau.take_mean_loss(), 3.0);
  EXPECT_FALSE(plateau.take_mean_loss()) << "the next interval has none yet";
}

TEST(PlateauTest, EndsIntervalOfTrainingLoss) {
  config::SchedulerConfig scheduler{.schedule = ReduceOnPlateauScheduler{.every_steps = 3}};
  for (uint64_t step = 1; step <= 6; ++step)
    EXPECT_EQ(ends_plateau_interval(scheduler, step), step % 3 == 0) << step;
  std::get<ReduceOnPlateauScheduler>(scheduler.schedule).monitor = config::PlateauMonitor::kEval;
  EXPECT_FALSE(ends_plateau_interval(scheduler, 3));
  EXPECT_FALSE(ends_plateau_interval({.schedule = config::CosineScheduler{}}, 3));
}

// Of the rate that the warmup rises to.
TEST(PlateauTest, ReducesWarmup) {
  const config::SchedulerConfig scheduler{
      .schedule = ReduceOnPlateauScheduler{.factor = 0.5, .num_reductions = 1}, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(scheduler, 1.0, 1, 100), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(scheduler, 1.0, 50, 100), 0.5);
}

}  // namespace
}  // namespace stoker::train
