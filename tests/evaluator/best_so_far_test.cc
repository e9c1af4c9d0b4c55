#include "evaluator/best_so_far.h"

#include <limits>

#include <gtest/gtest.h>

namespace stoker::evaluator {
namespace {

class BestSoFarTest : public ::testing::Test {
 protected:
  void add(uint64_t step, double loss, double accuracy = 0.5, const std::string& manifest = "") {
    best_.add(step, manifest.empty() ? "m" + std::to_string(step) : manifest, "val",
              {{"loss", loss}, {"accuracy", accuracy}});
  }
  std::vector<uint64_t> history_steps() const {
    std::vector<uint64_t> steps;
    const auto best = best_.maybe_best();
    for (const auto& point : best->history) steps.push_back(point.step);
    return steps;
  }

  BestSoFar best_{run::Goal{"val", "loss"}};
};

TEST_F(BestSoFarTest, EveryImprovementIsInTheHistory) {
  EXPECT_FALSE(best_.maybe_best().has_value());
  add(10, 3);
  add(20, 2);
  add(30, 2.5);
  add(40, 1);
  EXPECT_EQ(best_.maybe_best()->step, 40u);
  EXPECT_EQ(history_steps(), (std::vector<uint64_t>{10, 20, 40}));
}

TEST_F(BestSoFarTest, OfEqualsTheEarlierStays) {
  add(10, 2);
  add(20, 2);
  EXPECT_EQ(best_.maybe_best()->step, 10u);
}

TEST_F(BestSoFarTest, EachMetricHasItsOwnBestInItsOwnDirection) {
  add(10, 3, 0.9);
  add(20, 2, 0.8);
  const auto metrics = best_.maybe_best()->metrics;
  EXPECT_EQ(metrics.at("val/loss").step, 20u);
  EXPECT_EQ(metrics.at("val/accuracy").step, 10u);
  EXPECT_EQ(metrics.at("val/accuracy").manifest_sha256, "m10");
}

TEST_F(BestSoFarTest, WhatIsNoFiniteNumberIsNeverTheBest) {
  add(10, std::numeric_limits<double>::quiet_NaN());
  add(20, -std::numeric_limits<double>::infinity());
  EXPECT_FALSE(best_.maybe_best().has_value());
  add(30, 5);
  EXPECT_EQ(best_.maybe_best()->step, 30u);
}

TEST_F(BestSoFarTest, AStepThatWasEvaluatedAnewIsNoLongerWhatItWas) {
  add(10, 2);
  add(20, 1);
  add(20, 3, 0.5, "another");
  EXPECT_EQ(best_.maybe_best()->step, 10u) << "the checkpoint with 1 is gone";
  ASSERT_EQ(best_.history(20).size(), 2u);
  EXPECT_EQ(best_.history(20)[1].value, 3);
}

TEST_F(BestSoFarTest, TheSameResultTwiceChangesNothing) {
  add(10, 2);
  const auto before = best_.maybe_best();
  add(10, 2);
  EXPECT_EQ(best_.maybe_best(), before);
}

TEST_F(BestSoFarTest, WhatItRemembersOutlivesTheRows) {
  add(10, 3, 0.9);
  add(20, 1, 0.2);
  const run::Best known = *best_.maybe_best();
  BestSoFar again(run::Goal{"val", "loss"});
  again.remember(known);
  EXPECT_EQ(*again.maybe_best(), known);
  again.add(30, "m30", "val", {{"loss", 2}, {"accuracy", 0.5}});
  EXPECT_EQ(*again.maybe_best(), known) << "a restart must not regress the best";
}

TEST_F(BestSoFarTest, AnotherGoalFindsItsBestAmongAllResults) {
  add(10, 3, 0.9);
  add(20, 1, 0.2);
  BestSoFar by_accuracy(run::Goal{"val", "accuracy"});
  by_accuracy.remember(*best_.maybe_best());
  EXPECT_EQ(by_accuracy.maybe_best()->step, 10u);
}

}  // namespace
}  // namespace stoker::evaluator
