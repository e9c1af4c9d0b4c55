// The figures by hand, and as scikit-learn defines them.
#include "shared/eval_metrics/multilabel_metrics.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

namespace stoker::eval_metrics {
namespace {

std::map<std::string, double> by_name(const EvalReport& report) {
  return {report.metrics.begin(), report.metrics.end()};
}

// Three labels of four samples. The third is never true and once predicted.
const std::vector<float> kLogits{2, -1, -3, 1, 1, -1, -1, 1, 1, -2, -2, -2};
const std::vector<float> kTargets{1, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0};
const std::vector<float> kLosses(12, 0.5F);

TEST(MultilabelMetricsTest, MatchesManuallyComputedValues) {
  MultilabelMetrics score(3);
  score.add(kLosses, kLogits, kTargets);
  const EvalReport report = score.report();
  auto values = by_name(report);
  EXPECT_EQ(report.metrics.front().first, "loss");
  EXPECT_DOUBLE_EQ(values["loss"], 0.5);
  EXPECT_DOUBLE_EQ(values["exact_match"], 0.5);  // the first and the last
  // Label 0: 3 true, 2 predicted, both rightly. Label 1: 1 true, 2 predicted, 1 rightly.
  EXPECT_DOUBLE_EQ(values["micro_f1"], 2 * 3.0 / (4 + 5));
  EXPECT_DOUBLE_EQ(values["macro_f1"], (4.0 / 5 + 2.0 / 3 + 0) / 3);
  // Label 0 is in order: 1. Label 1: its true sample shares the highest logit with a false one.
  EXPECT_DOUBLE_EQ(values["mean_average_precision"], (1 + 0.5) / 2);
  ASSERT_EQ(report.classes.size(), 3u);
  EXPECT_EQ(report.classes[0], (PerClassMetrics{"0", 3, 1, 2.0 / 3, 0.8}));
  EXPECT_EQ(report.classes[2], (PerClassMetrics{"2", 0, 0, 0, 0}));
}

TEST(MultilabelMetricsTest, IsIndependentOfBatchBoundaries) {
  MultilabelMetrics whole(3), parts(3);
  whole.add(kLosses, kLogits, kTargets);
  for (size_t first = 0; first < 12; first += 3)
    parts.add(std::span(kLosses).subspan(first, 3), std::span(kLogits).subspan(first, 3),
              std::span(kTargets).subspan(first, 3));
  EXPECT_EQ(whole.report().metrics, parts.report().metrics);
}

// sklearn.metrics.average_precision_score([1, 0, 1, 1, 0], [0.9, 0.8, 0.7, 0.7, 0.1])
TEST(MultilabelMetricsTest, MatchesScikitLearnAveragePrecision) {
  MultilabelMetrics score(1);
  const std::vector<float> logits{0.9F, 0.8F, 0.7F, 0.7F, 0.1F}, targets{1, 0, 1, 1, 0},
      losses(5, 0);
  score.add(losses, logits, targets);
  EXPECT_DOUBLE_EQ(by_name(score.report())["mean_average_precision"],
                   1.0 / 3 * 1 + 2.0 / 3 * 3 / 4);
}

TEST(MultilabelMetricsTest, ReturnsNanWithoutSamples) {
  const MultilabelMetrics score(2);
  EXPECT_TRUE(std::isnan(by_name(score.report())["loss"]));
  EXPECT_TRUE(std::isnan(by_name(score.report())["mean_average_precision"]));
}

}  // namespace
}  // namespace stoker::eval_metrics
