#include "evaluator/best_tracker.h"

#include <limits>

#include <gtest/gtest.h>

namespace stoker::evaluator {
namespace {

const eval_metrics::MetricTable kTable(
    {{.name = "loss"}, {.name = "accuracy", .direction = eval_metrics::Direction::kMaximize}});

class BestTrackerTest : public ::testing::Test {
 protected:
  void add(uint64_t step, double loss, double accuracy = 0.5, const std::string& manifest = "") {
    best_.add(step, manifest.empty() ? "m" + std::to_string(step) : manifest, "val",
              {{"loss", loss}, {"accuracy", accuracy}});
  }
  std::vector<uint64_t> history_steps() const {
    std::vector<uint64_t> steps;
    const auto best = best_.find_best();
    for (const auto& point : best->history) steps.push_back(point.step);
    return steps;
  }

  BestTracker best_{run::Monitor{"val", "loss"}, kTable};
};

TEST_F(BestTrackerTest, RecordsEveryImprovementInHistory) {
  EXPECT_FALSE(best_.find_best().has_value());
  add(10, 3);
  add(20, 2);
  add(30, 2.5);
  add(40, 1);
  EXPECT_EQ(best_.find_best()->step, 40u);
  EXPECT_EQ(history_steps(), (std::vector<uint64_t>{10, 20, 40}));
}

TEST_F(BestTrackerTest, PrefersEarlierStepOnEqualValues) {
  add(10, 2);
  add(20, 2);
  EXPECT_EQ(best_.find_best()->step, 10u);
}

TEST_F(BestTrackerTest, TracksBestPerMetricInItsDirection) {
  add(10, 3, 0.9);
  add(20, 2, 0.8);
  const auto metrics = best_.find_best()->metrics;
  EXPECT_EQ(metrics.at("val/loss").step, 20u);
  EXPECT_EQ(metrics.at("val/accuracy").step, 10u);
  EXPECT_EQ(metrics.at("val/accuracy").manifest_sha256, "m10");
}

TEST_F(BestTrackerTest, IgnoresNonfiniteValues) {
  add(10, std::numeric_limits<double>::quiet_NaN());
  add(20, -std::numeric_limits<double>::infinity());
  EXPECT_FALSE(best_.find_best().has_value());
  add(30, 5);
  EXPECT_EQ(best_.find_best()->step, 30u);
}

TEST_F(BestTrackerTest, ReplacesResultWhenStepIsEvaluatedAgain) {
  add(10, 2);
  add(20, 1);
  add(20, 3, 0.5, "another");
  EXPECT_EQ(best_.find_best()->step, 10u) << "the checkpoint with value 1 was deleted";
  ASSERT_EQ(best_.history(20).size(), 2u);
  EXPECT_EQ(best_.history(20)[1].value, 3);
}

TEST_F(BestTrackerTest, IgnoresRepeatedResult) {
  add(10, 2);
  const auto before = best_.find_best();
  add(10, 2);
  EXPECT_EQ(best_.find_best(), before);
}

TEST_F(BestTrackerTest, ReplacesValueOfSameCheckpointInItsPlace) {
  add(10, 2);
  add(20, 3);
  add(10, 2);
  ASSERT_EQ(best_.find_best()->history.size(), 1u) << "step 20 was never the best";
  add(10, 4);
  EXPECT_EQ(best_.find_best()->step, 20u);
}

TEST_F(BestTrackerTest, RestoresBestWithoutMetricsRecords) {
  add(10, 3, 0.9);
  add(20, 1, 0.2);
  const run::BestCheckpoint known = *best_.find_best();
  BestTracker again(run::Monitor{"val", "loss"}, kTable);
  again.restore(known);
  EXPECT_EQ(*again.find_best(), known);
  again.add(30, "m30", "val", {{"loss", 2}, {"accuracy", 0.5}});
  EXPECT_EQ(*again.find_best(), known) << "a restart must not regress the best";
}

TEST_F(BestTrackerTest, FindsBestOfAnotherMonitorInRestoredMetrics) {
  add(10, 3, 0.9);
  add(20, 1, 0.2);
  BestTracker by_accuracy({"val", "accuracy", eval_metrics::Direction::kMaximize}, kTable);
  by_accuracy.restore(*best_.find_best());
  EXPECT_EQ(by_accuracy.find_best()->step, 10u);
}

}  // namespace
}  // namespace stoker::evaluator
