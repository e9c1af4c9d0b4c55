#include "daemon/train/save_triggers.h"

#include <cmath>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

namespace stoker::train {
namespace {

using namespace std::chrono_literals;

config::CheckpointConfig only(std::optional<uint64_t> every_steps,
                              std::optional<double> every_seconds,
                              std::optional<double> on_loss_improvement) {
  config::CheckpointConfig options;
  options.save_every_steps = every_steps;
  options.save_every_seconds = every_seconds;
  options.save_on_loss_improvement = on_loss_improvement;
  return options;
}

TEST(SaveTriggersTest, TriggersAtStepMultiplesOnly) {
  const auto options = only(4, {}, {});
  SaveTriggers triggers(options, false);
  for (uint64_t step = 1; step <= 12; ++step)
    EXPECT_EQ(triggers.due(step, 0s, {}, false),
              step % 4 == 0 ? SaveReason::kSteps : SaveReason::kNone);
}

TEST(SaveTriggersTest, TriggersByTimeUntilSaved) {
  const auto options = only({}, 60, {});
  SaveTriggers triggers(options, false);
  triggers.start(100s);
  EXPECT_EQ(triggers.due(1, 159s, {}, false), SaveReason::kNone);
  EXPECT_EQ(triggers.due(2, 160s, {}, false), SaveReason::kSeconds);
  EXPECT_EQ(triggers.due(3, 170s, {}, false), SaveReason::kSeconds) << "the writer was busy";
  triggers.record_save(170s);
  EXPECT_EQ(triggers.due(4, 229s, {}, false), SaveReason::kNone);
  EXPECT_EQ(triggers.due(5, 230s, {}, false), SaveReason::kSeconds);
}

TEST(SaveTriggersTest, TriggersOnLossImprovementSinceLastCheckpoint) {
  const auto options = only({}, {}, 0.1);
  SaveTriggers triggers(options, false);
  LossTrend trend;
  trend.add(10);
  EXPECT_EQ(triggers.due(1, 0s, trend, false), SaveReason::kNone)
      << "there is nothing to fall from";
  trend.add(9.5);
  EXPECT_EQ(triggers.due(2, 0s, trend, false), SaveReason::kNone);
  for (int i = 0; trend.mean() >= 9 && i < 1000; ++i) trend.add(5);
  EXPECT_EQ(triggers.due(3, 0s, trend, false), SaveReason::kImprovement);
  EXPECT_EQ(triggers.due(4, 0s, trend, false), SaveReason::kImprovement) << "the writer was busy";
  trend.record_save();
  triggers.record_save(0s);
  EXPECT_EQ(triggers.due(5, 0s, trend, false), SaveReason::kNone);
}

TEST(SaveTriggersTest, NeverTriggersWhenDisabled) {
  const auto options = only({}, {}, {});
  SaveTriggers triggers(options, false);
  LossTrend trend;
  for (const double loss : {10.0, 1.0, 0.1}) trend.add(loss);
  EXPECT_EQ(triggers.due(200, 24h, trend, false), SaveReason::kNone);
}

TEST(SaveTriggersTest, TriggersOnceImmediatelyAfterResume) {
  const auto options = only({}, {}, {});
  SaveTriggers triggers(options, true);
  EXPECT_EQ(triggers.due(1, 0s, {}, false), SaveReason::kAfterResume);
  triggers.record_save(0s);
  EXPECT_EQ(triggers.due(2, 0s, {}, false), SaveReason::kNone);
}

// The maximum retry delay bounds how long a recovered disk stays unused.
TEST(SaveTriggersTest, RetriesWithBackoffUntilSaveSucceeds) {
  const auto options = only({}, 1, 0.5);  // would always be due
  SaveTriggers triggers(options, false);
  LossTrend trend;
  std::vector<long> tried;
  for (auto now = 0s; now < 3000s; now += 1s) {
    if (triggers.due(1, now, trend, true) == SaveReason::kNone) continue;
    tried.push_back(now.count());
    triggers.record_save(now);
  }
  EXPECT_EQ(tried, (std::vector<long>{30, 91, 212, 453, 934, 1535, 2136, 2737}));
  EXPECT_EQ(triggers.due(1, 3000s, trend, false), SaveReason::kSeconds);
  triggers.record_save(3000s);
  EXPECT_EQ(triggers.due(1, 3000s, trend, true), SaveReason::kNone);
  EXPECT_EQ(triggers.due(1, 3030s, trend, true), SaveReason::kRetry) << "the retry delay is reset";
}

TEST(SaveTriggersTest, TriggersDueStepDuringBackoff) {
  const auto options = only(4, {}, {});
  SaveTriggers triggers(options, false);
  EXPECT_EQ(triggers.due(4, 0s, {}, true), SaveReason::kSteps);
}

TEST(LossTrendTest, IgnoresSingleLowLoss) {
  LossTrend trend;
  for (int row = 0; row < 20; ++row) trend.add(2);
  trend.add(1.5);
  EXPECT_FALSE(trend.has_improved_by(0.05));
  for (int row = 0; row < 20; ++row) trend.add(1.5);
  EXPECT_TRUE(trend.has_improved_by(0.05));
}

TEST(LossTrendTest, DetectsImprovementOfNegativeLoss) {
  LossTrend trend;
  trend.add(-1);
  for (int row = 0; row < 50; ++row) trend.add(-2);
  EXPECT_TRUE(trend.has_improved_by(0.5));
  trend.record_save();
  EXPECT_FALSE(trend.has_improved_by(0.01));
}

TEST(LossTrendTest, IgnoresNonfiniteLoss) {
  LossTrend trend;
  trend.add(std::nan(""));
  EXPECT_FALSE(trend.has_improved_by(0.01));
  trend.record_save();
  trend.add(3);
  const LossTrend before = trend;
  trend.add(-std::numeric_limits<double>::infinity());
  EXPECT_EQ(trend, before);
}

// A loss that rises and falls again does not trigger another save on the way down.
TEST(LossTrendTest, NeverRaisesBaseline) {
  LossTrend trend;
  for (int row = 0; row < 50; ++row) trend.add(1);
  trend.record_save();
  for (int row = 0; row < 50; ++row) trend.add(4);
  trend.record_save();
  for (int row = 0; row < 50; ++row) trend.add(1);
  EXPECT_FALSE(trend.has_improved_by(0.01));
}

TEST(LossTrendTest, LimitsNumberOfImprovementsOnFallingLoss) {
  LossTrend trend;
  int saved = 0;
  for (double loss = 100; loss > 1; loss *= 0.99) {
    trend.add(loss);
    if (!trend.has_improved_by(0.1)) continue;
    trend.record_save();
    ++saved;
  }
  EXPECT_GT(saved, 30);
  EXPECT_LE(saved, std::log(100) / -std::log(0.9));
}

}  // namespace
}  // namespace stoker::train
