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
  config::CheckpointConfig settings;
  settings.save_every_steps = every_steps;
  settings.save_every_seconds = every_seconds;
  settings.save_on_loss_improvement = on_loss_improvement;
  return settings;
}

TEST(SaveTriggers, ByStepsAtEachMultipleAndNoOther) {
  const auto settings = only(4, {}, {});
  SaveTriggers triggers(settings, false);
  for (uint64_t step = 1; step <= 12; ++step)
    EXPECT_EQ(triggers.due(step, 0s, {}, false),
              step % 4 == 0 ? SaveReason::kSteps : SaveReason::kNone);
}

TEST(SaveTriggers, ByTheClockUntilOneIsTaken) {
  const auto settings = only({}, 60, {});
  SaveTriggers triggers(settings, false);
  triggers.start(100s);
  EXPECT_EQ(triggers.due(1, 159s, {}, false), SaveReason::kNone);
  EXPECT_EQ(triggers.due(2, 160s, {}, false), SaveReason::kSeconds);
  EXPECT_EQ(triggers.due(3, 170s, {}, false), SaveReason::kSeconds) << "the writer was busy";
  triggers.note_saved(170s);
  EXPECT_EQ(triggers.due(4, 229s, {}, false), SaveReason::kNone);
  EXPECT_EQ(triggers.due(5, 230s, {}, false), SaveReason::kSeconds);
}

TEST(SaveTriggers, ByALossThatFellSinceTheLastCheckpoint) {
  const auto settings = only({}, {}, 0.1);
  SaveTriggers triggers(settings, false);
  LossTrend trend;
  trend.add(10);
  EXPECT_EQ(triggers.due(1, 0s, trend, false), SaveReason::kNone)
      << "there is nothing to fall from";
  trend.add(9.5);
  EXPECT_EQ(triggers.due(2, 0s, trend, false), SaveReason::kNone);
  while (trend.mean() >= 9) trend.add(5);
  EXPECT_EQ(triggers.due(3, 0s, trend, false), SaveReason::kImprovement);
  EXPECT_EQ(triggers.due(4, 0s, trend, false), SaveReason::kImprovement) << "the writer was busy";
  trend.note_saved();
  triggers.note_saved(0s);
  EXPECT_EQ(triggers.due(5, 0s, trend, false), SaveReason::kNone);
}

TEST(SaveTriggers, NothingIsDueWhereAllIsOff) {
  const auto settings = only({}, {}, {});
  SaveTriggers triggers(settings, false);
  LossTrend trend;
  for (const double loss : {10.0, 1.0, 0.1}) trend.add(loss);
  EXPECT_EQ(triggers.due(200, 24h, trend, false), SaveReason::kNone);
}

TEST(SaveTriggers, SoonIsAtOnceAndOnce) {
  const auto settings = only({}, {}, {});
  SaveTriggers triggers(settings, true);
  EXPECT_EQ(triggers.due(1, 0s, {}, false), SaveReason::kSoon);
  triggers.note_saved(0s);
  EXPECT_EQ(triggers.due(2, 0s, {}, false), SaveReason::kNone);
}

// The longest time between two tries bounds what a disk that works again still costs.
TEST(SaveTriggers, FailedOnesAreTriedAgainEverMoreRarelyUntilOneSucceeds) {
  const auto settings = only({}, 1, 0.5);  // which would be due all the time
  SaveTriggers triggers(settings, false);
  LossTrend trend;
  std::vector<long> tried;
  for (auto now = 0s; now < 3000s; now += 1s) {
    if (triggers.due(1, now, trend, true) == SaveReason::kNone) continue;
    tried.push_back(now.count());
    triggers.note_saved(now);
  }
  EXPECT_EQ(tried, (std::vector<long>{30, 91, 212, 453, 934, 1535, 2136, 2737}));
  EXPECT_EQ(triggers.due(1, 3000s, trend, false), SaveReason::kSeconds);
  triggers.note_saved(3000s);
  EXPECT_EQ(triggers.due(1, 3000s, trend, true), SaveReason::kNone);
  EXPECT_EQ(triggers.due(1, 3030s, trend, true), SaveReason::kRetry) << "it begins anew";
}

TEST(SaveTriggers, AStepThatIsDueIsTriedAlsoWhileTheOthersFail) {
  const auto settings = only(4, {}, {});
  SaveTriggers triggers(settings, false);
  EXPECT_EQ(triggers.due(4, 0s, {}, true), SaveReason::kSteps);
}

TEST(LossTrend, OneLuckyRowIsNoImprovement) {
  LossTrend trend;
  for (int row = 0; row < 20; ++row) trend.add(2);
  trend.add(1.5);
  EXPECT_FALSE(trend.has_fallen_by(0.05));
  for (int row = 0; row < 20; ++row) trend.add(1.5);
  EXPECT_TRUE(trend.has_fallen_by(0.05));
}

TEST(LossTrend, ALossBelowZeroFallsToo) {
  LossTrend trend;
  trend.add(-1);
  for (int row = 0; row < 50; ++row) trend.add(-2);
  EXPECT_TRUE(trend.has_fallen_by(0.5));
  trend.note_saved();
  EXPECT_FALSE(trend.has_fallen_by(0.01));
}

TEST(LossTrend, WhatIsNoNumberSaysNothing) {
  LossTrend trend;
  trend.add(std::nan(""));
  EXPECT_FALSE(trend.has_fallen_by(0.01));
  trend.note_saved();
  trend.add(3);
  const LossTrend before = trend;
  trend.add(-std::numeric_limits<double>::infinity());
  EXPECT_EQ(trend, before);
}

// A loss that rises and falls again is not saved anew on its way down.
TEST(LossTrend, TheBaseOnlyEverFalls) {
  LossTrend trend;
  for (int row = 0; row < 50; ++row) trend.add(1);
  trend.note_saved();
  for (int row = 0; row < 50; ++row) trend.add(4);
  trend.note_saved();
  for (int row = 0; row < 50; ++row) trend.add(1);
  EXPECT_FALSE(trend.has_fallen_by(0.01));
}

TEST(LossTrend, FewAreDueHoweverFarTheLossFalls) {
  LossTrend trend;
  int saved = 0;
  for (double loss = 100; loss > 1; loss *= 0.99) {
    trend.add(loss);
    if (!trend.has_fallen_by(0.1)) continue;
    trend.note_saved();
    ++saved;
  }
  EXPECT_GT(saved, 30);
  EXPECT_LE(saved, std::log(100) / -std::log(0.9));
}

}  // namespace
}  // namespace stoker::train
