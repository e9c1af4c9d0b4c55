#include "daemon/train/schedule.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/config/epochs.h"
#include "shared/config/load_config.h"

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

// ---- torch.optim.lr_scheduler of PyTorch 2.11: the rates of 20 steps from lr = 0.5, with 10 digits

struct TorchSchedule {
  const char* name;
  config::SchedulerConfig config;
  std::vector<double> rates;
};

const std::vector<TorchSchedule> kTorchSchedules{
    // MultiStepLR([3, 7, 8], gamma=0.3)
    {"MultiStep",
     {.schedule = config::MultiStepScheduler{.milestones = {3, 7, 8}, .gamma = 0.3},
      .warmup_steps = 0},
     {0.5,    0.5,    0.5,    0.15,   0.15,   0.15,   0.15,   0.045,  0.0135, 0.0135,
      0.0135, 0.0135, 0.0135, 0.0135, 0.0135, 0.0135, 0.0135, 0.0135, 0.0135, 0.0135}},
    // ExponentialLR(0.9)
    {"Exponential",
     {.schedule = config::ExponentialScheduler{.gamma = 0.9}, .warmup_steps = 0},
     {0.5,          0.45,          0.405,        0.3645,        0.32805,
      0.295245,     0.2657205,     0.23914845,   0.215233605,   0.1937102445,
      0.1743392201, 0.156905298,   0.1412147682, 0.1270932914,  0.1143839623,
      0.102945566,  0.09265100944, 0.0833859085, 0.07504731765, 0.06754258588}},
    // PolynomialLR(total_iters=20, power=2)
    {"Polynomial",
     {.schedule = config::PolynomialScheduler{.power = 2, .min_lr = 0}, .warmup_steps = 0},
     {0.5,   0.45125, 0.405, 0.36125, 0.32,  0.28125, 0.245, 0.21125, 0.18,  0.15125,
      0.125, 0.10125, 0.08,  0.06125, 0.045, 0.03125, 0.02,  0.01125, 0.005, 0.00125}},
    // OneCycleLR(max_lr=0.5, total_steps=20, cycle_momentum=False)
    {"OneCycle",
     {.schedule = config::OneCycleScheduler{}},
     {0.02,          0.06583592135, 0.1858359214,  0.3341640786,   0.4541640786,
      0.5,           0.4937320031,  0.475242316,   0.4454580888,   0.405872827,
      0.3584715009,  0.305631011,   0.250001,      0.194370989,    0.1415304991,
      0.09412917303, 0.05454391121, 0.02475968399, 0.006269996882, 2e-06}},
    // ... pct_start=0.4, anneal_strategy="linear", div_factor=10, final_div_factor=100, three_phase=True)
    {"OneCycleInThreePhases",
     {.schedule = config::OneCycleScheduler{.pct_start = 0.4,
                                            .anneal_strategy = config::AnnealStrategy::kLinear,
                                            .div_factor = 10,
                                            .final_div_factor = 100,
                                            .three_phase = true}},
     {0.05, 0.1142857143, 0.1785714286, 0.2428571429, 0.3071428571, 0.3714285714, 0.4357142857,
      0.5,  0.4357142857, 0.3714285714, 0.3071428571, 0.2428571429, 0.1785714286, 0.1142857143,
      0.05, 0.0401,       0.0302,       0.0203,       0.0104,       0.0005}},
    // CosineAnnealingWarmRestarts(T_0=6, eta_min=0.05)
    {"WarmRestarts",
     {.schedule = config::CosineWarmRestartsScheduler{.t_0 = 6, .min_lr = 0.05}, .warmup_steps = 0},
     {0.5,          0.4698557159, 0.3875, 0.275,         0.1625,        0.08014428415, 0.5,
      0.4698557159, 0.3875,       0.275,  0.1625,        0.08014428415, 0.5,           0.4698557159,
      0.3875,       0.275,        0.1625, 0.08014428415, 0.5,           0.4698557159}},
    // CosineAnnealingWarmRestarts(T_0=3, T_mult=2, eta_min=0.05)
    {"LongerWarmRestarts",
     {.schedule = config::CosineWarmRestartsScheduler{.t_0 = 3, .t_mult = 2, .min_lr = 0.05},
      .warmup_steps = 0},
     {0.5,          0.3875,        0.1625,       0.5,          0.4698557159, 0.3875,       0.275,
      0.1625,       0.08014428415, 0.5,          0.4923333109, 0.4698557159, 0.4340990258, 0.3875,
      0.3332342851, 0.275,         0.2167657149, 0.1625,       0.1159009742, 0.08014428415}},
    // SequentialLR([LinearLR(0.01, total_iters=5), CosineAnnealingLR(T_max=15, eta_min=0.05)], [5])
    {"WarmupFromFactorThenCosine",
     {.schedule = config::CosineScheduler{.min_lr = 0.05},
      .warmup_steps = 5,
      .warmup_start_factor = 0.01},
     {0.005,  0.104,        0.203,         0.302,         0.401,
      0.5,    0.4950832102, 0.480547728,   0.4570288237,  0.4255543864,
      0.3875, 0.3445288237, 0.2985189042,  0.2514810958,  0.2054711763,
      0.1625, 0.1244456136, 0.09297117627, 0.06945227203, 0.05491678983}},
    // SequentialLR([LinearLR(0.25, total_iters=4), MultiStepLR([3, 7])], [4])
    {"WarmupFromFactorThenMultiStep",
     {.schedule = config::MultiStepScheduler{.milestones = {3, 7}, .gamma = 0.1},
      .warmup_steps = 4,
      .warmup_start_factor = 0.25},
     {0.125, 0.21875, 0.3125, 0.40625, 0.5,   0.5,   0.5,   0.05,  0.05,  0.05,
      0.05,  0.005,   0.005,  0.005,   0.005, 0.005, 0.005, 0.005, 0.005, 0.005}},
};

class TorchScheduleTest : public ::testing::TestWithParam<TorchSchedule> {};

TEST_P(TorchScheduleTest, HasRatesOfPyTorch) {
  const TorchSchedule& row = GetParam();
  ASSERT_EQ(row.rates.size(), 20u);
  for (uint64_t step = 0; step < row.rates.size(); ++step)
    EXPECT_NEAR(learning_rate(row.config, 0.5, step, 20), row.rates[step], 1e-9) << step;
}

INSTANTIATE_TEST_SUITE_P(Schedules, TorchScheduleTest, ::testing::ValuesIn(kTorchSchedules),
                         [](const auto& each) { return std::string(each.param.name); });

// After 5 of 12 epochs their length doubles.
TEST(SchedulerTest, ContinuesInEpochsWhenTheirLengthChanges) {
  for (const std::string schedule :
       {"name: cosine", "name: linear", "name: polynomial, power: 2",
        "name: step, step_size: {epochs: 2}, gamma: 0.5",
        "name: multi_step, milestones: {epochs: [1, 3, 7]}",
        "name: exponential, gamma: 0.9, step_size: {epochs: 1}",
        "name: cosine_warm_restarts, t_0: {epochs: 3}", "name: constant"}) {
    auto config = config::parse_config(
        "data: {train: {format: text, path: a}}\nmodel: {name: gpt}\ntrain: {max_epochs: "
        "12}\nscheduler: {" +
            schedule + ", warmup_steps: {epochs: 1}}\n",
        "test.yaml", {});
    ASSERT_TRUE(config.ok()) << config.status().message();
    const auto rate_at = [&](uint64_t step) {
      return learning_rate(config->scheduler, 1.0, config::schedule_step(*config, step),
                           config::schedule_step(*config, config->train.max_steps));
    };
    config::resolve_epochs(*config, {.steps = 10});
    EXPECT_EQ(config->train.max_steps, 120u);
    const double at_5 = rate_at(50), at_9 = rate_at(90);
    config::resolve_epochs(*config, {.steps = 20, .step = 50, .epochs = 5});
    EXPECT_EQ(config->train.max_steps, 50u + 140);
    EXPECT_NEAR(rate_at(50), at_5, 1e-12) << schedule;
    EXPECT_NEAR(rate_at(50 + 80), at_9, 1e-12) << schedule;
  }
}

// One step per epoch of ExponentialLR is a step of step_size here.
TEST(SchedulerTest, DecaysByGammaOverStepSizeWithExponential) {
  const auto config = schedule(config::ExponentialScheduler{.gamma = 0.5, .step_size = 10}, 5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 5, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 10, 100), std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 25, 100), 0.25);
}

TEST(SchedulerTest, StaysAtLastRateOfOneCycle) {
  const config::SchedulerConfig config{.schedule = config::OneCycleScheduler{}};
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 500, 100), 1 / 25e4);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 0, 1), 1 / 25e4) << "a run of one step";
}

}  // namespace
}  // namespace stoker::train
