// Values computed by hand, and as scikit-learn defines them; edit distances and collapsed CTC
// paths.
#include "shared/eval_metrics/eval_metrics.h"

#include <cmath>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace stoker::eval_metrics {
namespace {

std::map<std::string, double> metrics_of(const EvalReport& report) {
  return {report.metrics.begin(), report.metrics.end()};
}

struct Labeled {
  std::vector<float> losses, confidences;
  std::vector<int64_t> labels, predictions;
  std::vector<uint8_t> in_top;

  ClassifiedSamples part(size_t first, size_t count) const {
    return {std::span(losses).subspan(first, count), std::span(labels).subspan(first, count),
            std::span(predictions).subspan(first, count),
            std::span(confidences).subspan(first, count), std::span(in_top).subspan(first, count)};
  }
};

Labeled six() {
  return {.losses = {0.5F, 2, 0.25F, 1, 3, 0.25F},
          .confidences = {0.6F, 0.9F, 0.8F, 0.5F, 0.95F, 0.8F},
          .labels = {0, 0, 1, 1, 2, 2},
          .predictions = {0, 1, 1, 0, 0, 2},
          .in_top = {1, 1, 1, 1, 0, 1}};
}

// By hand: class 0 was predicted three times, once correctly; class 1 twice, once correctly; class
// 2 once, correctly. Each has two samples. Class 3 does not occur.
TEST(ClassificationMetricsTest, MatchesManuallyComputedValues) {
  ClassificationMetrics score({.classes = 4, .top_k = 2, .misclassified = 2});
  const Labeled samples = six();
  score.add(samples.part(0, 6));
  const EvalReport report = score.report();
  auto values = metrics_of(report);
  EXPECT_DOUBLE_EQ(values["loss"], 7.0 / 6);
  EXPECT_DOUBLE_EQ(values["accuracy"], 0.5);
  EXPECT_DOUBLE_EQ(values["top2_accuracy"], 5.0 / 6);
  EXPECT_DOUBLE_EQ(values["macro_precision"], (1.0 / 3 + 0.5 + 1) / 3);
  EXPECT_DOUBLE_EQ(values["macro_recall"], 0.5);
  EXPECT_DOUBLE_EQ(values["macro_f1"], (2.0 / 5 + 2.0 / 4 + 2.0 / 3) / 3);
  EXPECT_NEAR(values["mean_iou"], 0.361111111, 1e-9) << "jaccard_score of scikit-learn 1.9";
  EXPECT_NEAR(values["calibration_error"], 0.525, 1e-7)
      << "MulticlassCalibrationError(4, n_bins=15) of torchmetrics";
  EXPECT_EQ(report.metrics.front().first, "loss");
  EXPECT_EQ(report.confusion_matrix,
            (ConfusionMatrix{{1, 1, 0, 0}, {1, 1, 0, 0}, {1, 0, 1, 0}, {0, 0, 0, 0}}));
  ASSERT_EQ(report.classes.size(), 4u);
  EXPECT_EQ(report.classes[0], (PerClassMetrics{"0", 2, 1.0 / 3, 0.5, 0.4}));
  EXPECT_EQ(report.classes[3], (PerClassMetrics{"3", 0, 0, 0, 0}));
}

TEST(ClassificationMetricsTest, AppliesClassWeightsOnlyToLoss) {
  ClassificationMetrics weighted({.classes = 4, .misclassified = 2, .weights = {0.5, 4}});
  ClassificationMetrics plain({.classes = 4, .misclassified = 2});
  for (ClassificationMetrics* const score : {&weighted, &plain}) score->add(six().part(0, 6));
  auto values = metrics_of(weighted.report());
  // The third class has no weight, so 1 applies.
  EXPECT_DOUBLE_EQ(values["loss"], (0.5 * 2.5 + 4 * 1.25 + 3.25) / (0.5 * 2 + 4 * 2 + 2));
  auto others = metrics_of(plain.report());
  values.erase("loss");
  others.erase("loss");
  EXPECT_EQ(values, others);
  EXPECT_EQ(weighted.report().misclassified, plain.report().misclassified);
}

TEST(ClassificationMetricsTest, OrdersMisclassifiedSamplesByLossThenIndex) {
  Labeled samples = six();
  samples.losses[3] = 2;
  ClassificationMetrics score({.classes = 3, .top_k = 0, .misclassified = 2});
  score.add(samples.part(0, 6));
  const auto misclassified = score.report().misclassified;
  ASSERT_EQ(misclassified.size(), 2u);
  EXPECT_EQ(misclassified[0], (MisclassifiedSample{4, 2, 0, static_cast<double>(0.95F), 3}));
  EXPECT_EQ(misclassified[1].sample, 1u);
}

TEST(ClassificationMetricsTest, TreatsNonfiniteLossAsWorstMisclassifiedSample) {
  Labeled samples = six();
  samples.losses[1] = std::nanf("");
  ClassificationMetrics score({.classes = 3, .top_k = 0, .misclassified = 3});
  score.add(samples.part(0, 6));
  EXPECT_EQ(score.report().misclassified.front().sample, 1u);
  EXPECT_TRUE(std::isnan(metrics_of(score.report())["loss"]));
}

TEST(ClassificationMetricsTest, ReportsOnlyAveragesWithManyClasses) {
  ClassificationMetrics few({.classes = kMaxConfusionClasses + 1});
  EXPECT_TRUE(few.report().confusion_matrix.empty());
  EXPECT_EQ(few.report().classes.size(), kMaxConfusionClasses + 1);
  ClassificationMetrics many({.classes = 100'000});
  const Labeled samples = six();
  ClassifiedSamples batch = samples.part(0, 6);
  batch.is_in_top_k = {};
  many.add(batch);
  EXPECT_TRUE(many.report().classes.empty());
  EXPECT_DOUBLE_EQ(metrics_of(many.report())["macro_recall"], 0.5);
  EXPECT_FALSE(metrics_of(many.report()).contains("top0_accuracy"));
}

TEST(ClassificationMetricsTest, IsBitForBitIndependentOfBatchBoundaries) {
  std::mt19937 random(7);
  std::exponential_distribution<float> loss(1);
  Labeled samples;
  for (int i = 0; i < 1000; ++i) {
    samples.losses.push_back(loss(random));
    samples.confidences.push_back(0.5F);
    samples.labels.push_back(static_cast<int64_t>(random() % 10));
    samples.predictions.push_back(static_cast<int64_t>(random() % 10));
    samples.in_top.push_back(static_cast<uint8_t>(random() % 2));
  }
  const auto cut_into = [&](size_t batch) {
    ClassificationMetrics score({.classes = 10, .top_k = 5, .misclassified = 20});
    for (size_t first = 0; first < 1000; first += batch)
      score.add(samples.part(first, std::min(batch, 1000 - first)));
    return score.report();
  };
  const EvalReport whole = cut_into(1000);
  for (const size_t batch : {1, 3, 64, 999}) {
    const EvalReport report = cut_into(batch);
    EXPECT_EQ(report.metrics, whole.metrics) << batch;
    EXPECT_EQ(report.misclassified, whole.misclassified) << batch;
    EXPECT_EQ(report.confusion_matrix, whole.confusion_matrix) << batch;
  }
}

// By hand: class 1 is predicted for samples 1, 2, 3 and 5, and is the label of 1, 3 and 4. Of the
// nine pairs of a sample of each class, three are in order and two have equal logits.
TEST(BinaryClassificationMetricsTest, MatchesManuallyComputedValues) {
  BinaryClassificationMetrics score(1);
  const std::vector<float> losses{0.5F, 0.25F, 2, 0.25F, 1, 0.5F}, logits{-1, 2, 3, 2, -0.5F, 2};
  const std::vector<int64_t> labels{0, 1, 0, 1, 1, 0};
  score.add(std::span(losses).first(2), std::span(logits).first(2), std::span(labels).first(2));
  score.add(std::span(losses).subspan(2), std::span(logits).subspan(2),
            std::span(labels).subspan(2));
  const EvalReport report = score.report();
  EXPECT_EQ(report.metrics, (MetricValues{{"loss", 0.75},
                                          {"accuracy", 0.5},
                                          {"precision", 0.5},
                                          {"recall", 2.0 / 3},
                                          {"f1", 4.0 / 7},
                                          {"auroc", (1 + 1 + 1 + 0.5 + 0.5) / 9},
                                          {"average_precision", (2.0 * 2 / 4 + 1.0 * 3 / 5) / 3}}));
  EXPECT_EQ(report.confusion_matrix, (ConfusionMatrix{{1, 2}, {1, 2}}));
  ASSERT_EQ(report.classes.size(), 2u);
  EXPECT_EQ(report.classes[1], (PerClassMetrics{"1", 3, 0.5, 2.0 / 3, 4.0 / 7}));
  ASSERT_EQ(report.misclassified.size(), 1u);
  EXPECT_EQ(report.misclassified[0].sample, 2u);
  EXPECT_EQ(report.misclassified[0].prediction, 1);
  EXPECT_NEAR(report.misclassified[0].confidence, 1 / (1 + std::exp(-3.0)), 1e-6);
}

TEST(PrCurveCountsTest, CountsSamplesFromEachThresholdOn) {
  PrCurveCounts counts;
  counts.add(0, false);
  counts.add(0.5, true);
  counts.add(0.505, false);  // between two thresholds
  counts.add(1, true);
  counts.add(std::nan(""), true);
  const PrCurve curve = counts.curve("cat");
  EXPECT_EQ(curve.name, "cat");
  ASSERT_EQ(curve.true_positives.size(), kPrThresholds);
  ASSERT_EQ(curve.false_positives.size(), kPrThresholds);
  const std::vector<std::array<uint64_t, 3>> expected{
      {0, 2, 2}, {1, 2, 1}, {50, 2, 1}, {51, 1, 0}, {100, 1, 0}};
  for (const auto& [threshold, true_positives, false_positives] : expected) {
    EXPECT_EQ(curve.true_positives[threshold], true_positives) << threshold;
    EXPECT_EQ(curve.false_positives[threshold], false_positives) << threshold;
  }
}

TEST(PrCurveCountsTest, IsOfEachClassAgainstAllOthers) {
  ClassificationMetrics metrics({.classes = 3});
  const std::vector<float> losses{1, 1}, confidences{0.5F, 0.75F};
  const std::vector<int64_t> labels{0, 2}, predictions{0, 1};
  const std::vector<float> probabilities{0.5F, 0.25F, 0.25F, 0, 0.75F, 0.25F};
  metrics.add({losses, labels, predictions, confidences, {}, probabilities});
  const std::vector<PrCurve> curves = metrics.report().pr_curves;
  ASSERT_EQ(curves.size(), 3u);
  EXPECT_EQ(curves[2].name, "2");
  EXPECT_EQ(curves[0].true_positives[50], 1u);
  EXPECT_EQ(curves[0].false_positives[1], 0u);
  EXPECT_EQ(curves[1].true_positives[0], 0u);
  EXPECT_EQ(curves[1].false_positives[25], 2u);
  EXPECT_EQ(curves[1].false_positives[75], 1u);
  EXPECT_EQ(curves[2].true_positives[25], 1u);
  EXPECT_EQ(curves[2].true_positives[26], 0u);
}

TEST(PrCurveCountsTest, HasAtOneHalfTheCountsOfBinaryPrediction) {
  BinaryClassificationMetrics binary(0);
  const std::vector<float> losses(5, 0), logits{-2, 2, 3, -0.5F, 1};
  const std::vector<int64_t> labels{0, 1, 0, 1, 1};
  binary.add(losses, logits, labels);
  const EvalReport report = binary.report();
  ASSERT_EQ(report.pr_curves.size(), 1u);
  EXPECT_EQ(report.pr_curves[0].name, "1");
  EXPECT_EQ(report.pr_curves[0].true_positives[50], report.confusion_matrix[1][1]);
  EXPECT_EQ(report.pr_curves[0].false_positives[50], report.confusion_matrix[0][1]);
}

TEST(PrCurveCountsTest, IsOmittedForManyLabels) {
  for (const size_t labels : {kMaxPrCurves, kMaxPrCurves + 1}) {
    MultilabelMetrics metrics(labels);
    const std::vector<float> values(labels, 1);
    metrics.add(values, values, values);
    EXPECT_EQ(metrics.report().pr_curves.size(), labels == kMaxPrCurves ? labels : 0);
  }
}

// average_precision_score of scikit-learn 1.9 (tests/parity/make_recipe_numbers.py).
TEST(BinaryClassificationMetricsTest, HasAveragePrecisionOfScikitLearn) {
  const auto scored = [](const std::vector<float>& logits, const std::vector<int64_t>& labels) {
    BinaryClassificationMetrics score(0);
    score.add(std::vector<float>(logits.size()), logits, labels);
    return metrics_of(score.report())["average_precision"];
  };
  EXPECT_NEAR(scored({0.5F, 0.5F, 2, -1, -3, 0.25F}, {1, 0, 1, 1, 0, 0}), 0.755555556, 1e-9);
  EXPECT_EQ(scored({1, 2}, {0, 0}), 0) << "no sample of class 1";
  EXPECT_TRUE(std::isnan(scored({1, NAN}, {1, 0})));
}

double auroc(const std::vector<float>& logits, const std::vector<int64_t>& labels) {
  BinaryClassificationMetrics score(0);
  score.add(std::vector<float>(logits.size()), logits, labels);
  return metrics_of(score.report())["auroc"];
}

TEST(BinaryClassificationMetricsTest, MeasuresOrderOfLogits) {
  EXPECT_EQ(auroc({-2, -1, 1, 2}, {0, 0, 1, 1}), 1);
  EXPECT_EQ(auroc({5, 4, 3, 2}, {0, 0, 1, 1}), 0);
  EXPECT_EQ(auroc({0, 0, 0, 0}, {0, 1, 1, 1}), 0.5);
  EXPECT_TRUE(std::isnan(auroc({1, 2}, {1, 1}))) << "no sample of class 0";
  EXPECT_TRUE(std::isnan(auroc({1, NAN, 2}, {1, 0, 0})));
}

TEST(LanguageModelingMetricsTest, DerivesBitsAndPerplexityFromLoss) {
  LanguageModelingMetrics score(true);
  const std::vector<float> losses{1, 2, 3, 2};
  const std::vector<int64_t> targets{5, 6, 7, 8}, predictions{5, 0, 7, 0};
  score.add(losses, targets, predictions);
  auto values = metrics_of(score.report());
  EXPECT_DOUBLE_EQ(values["loss"], 2);
  EXPECT_DOUBLE_EQ(values["bits_per_byte"], 2 / std::log(2.0));
  EXPECT_DOUBLE_EQ(values["perplexity"], std::exp(2.0));
  EXPECT_DOUBLE_EQ(values["accuracy"], 0.5);
  EXPECT_TRUE(metrics_of(LanguageModelingMetrics(false).report()).contains("bits_per_token"));
}

TEST(LanguageModelingMetricsTest, IsBitForBitIndependentOfBatchBoundaries) {
  std::mt19937 random(11);
  std::exponential_distribution<float> draw(1);
  std::vector<float> losses(1000);
  for (float& loss : losses) loss = draw(random);
  const std::vector<int64_t> tokens(1000, 1);
  LanguageModelingMetrics whole(true), cut(true);
  whole.add(losses, tokens, tokens);
  for (size_t first = 0; first < 1000; first += 7) {
    const size_t count = std::min<size_t>(7, 1000 - first);
    cut.add(std::span(losses).subspan(first, count), std::span(tokens).subspan(first, count),
            std::span(tokens).subspan(first, count));
  }
  EXPECT_EQ(whole.report().metrics, cut.report().metrics);
}

TEST(RegressionMetricsTest, MatchesManuallyComputedValuesFarFromZero) {
  RegressionMetrics score(1);
  const std::vector<float> targets{1e6F, 1e6F + 1, 1e6F + 2}, outputs{1e6F + 1, 1e6F + 1, 1e6F};
  score.add(std::vector<float>{0.5F, 0, 1.5F}, outputs, targets);
  auto values = metrics_of(score.report());
  EXPECT_DOUBLE_EQ(values["loss"], 2.0 / 3);
  EXPECT_DOUBLE_EQ(values["mse"], 5.0 / 3);
  EXPECT_DOUBLE_EQ(values["rmse"], std::sqrt(5.0 / 3));
  EXPECT_DOUBLE_EQ(values["mae"], 1);
  EXPECT_DOUBLE_EQ(values["r2"], 1 - 5.0 / 2);
}

TEST(RegressionMetricsTest, AveragesColumnsAndScoresConstantColumnByExactness) {
  RegressionMetrics met(2), missed(2);
  const std::vector<float> targets{1, 7, 3, 7}, correct{1, 7, 3, 7}, wrong{1, 8, 3, 7};
  const std::vector<float> losses(4);
  met.add(losses, correct, targets);
  missed.add(losses, wrong, targets);
  EXPECT_DOUBLE_EQ(metrics_of(met.report())["r2"], 1);
  EXPECT_DOUBLE_EQ(metrics_of(missed.report())["r2"], 0.5);
}

TEST(RegressionMetricsTest, IsBitForBitIndependentOfBatchBoundaries) {
  std::mt19937 random(13);
  std::normal_distribution<float> draw(3, 2);
  std::vector<float> outputs(600), targets(600);
  for (size_t i = 0; i < 600; ++i) {
    outputs[i] = draw(random);
    targets[i] = draw(random);
  }
  RegressionMetrics whole(3), cut(3);
  const std::vector<float>& losses = outputs;  // any numbers
  whole.add(losses, outputs, targets);
  for (size_t first = 0; first < 600; first += 3 * 7) {
    const size_t count = std::min<size_t>(3 * 7, 600 - first);
    cut.add(std::span(losses).subspan(first, count), std::span(outputs).subspan(first, count),
            std::span(targets).subspan(first, count));
  }
  EXPECT_EQ(whole.report().metrics, cut.report().metrics);
}

TEST(EmptyMetricsTest, ReturnsNanWithoutSamples) {
  EXPECT_TRUE(std::isnan(metrics_of(ClassificationMetrics({.classes = 2}).report())["loss"]));
  EXPECT_TRUE(std::isnan(metrics_of(LanguageModelingMetrics(true).report())["loss"]));
  EXPECT_TRUE(std::isnan(metrics_of(RegressionMetrics(2).report())["r2"]));
  EXPECT_TRUE(std::isnan(metrics_of(BinaryClassificationMetrics(0).report())["auroc"]));
}

using Labels = std::vector<int64_t>;

uint64_t distance(const Labels& one, const Labels& other) { return edit_distance(one, other); }

// By definition: the minimum over the three possible last edits.
uint64_t slow_distance(std::span<const int64_t> one, std::span<const int64_t> other) {
  if (one.empty() || other.empty()) return one.size() + other.size();
  const auto less_one = one.first(one.size() - 1), less_other = other.first(other.size() - 1);
  const uint64_t replaced =
      slow_distance(less_one, less_other) + (one.back() == other.back() ? 0 : 1);
  return std::min(
      {replaced, slow_distance(less_one, other) + 1, slow_distance(one, less_other) + 1});
}

TEST(EditDistanceTest, CountsMinimumInsertionsDeletionsAndSubstitutions) {
  EXPECT_EQ(distance({}, {}), 0u);
  EXPECT_EQ(distance({1, 2, 3}, {}), 3u);
  EXPECT_EQ(distance({}, {4}), 1u);
  EXPECT_EQ(distance({1, 2, 3}, {1, 2, 3}), 0u);
  EXPECT_EQ(distance({1, 2, 3}, {1, 3}), 1u);
  EXPECT_EQ(distance({1, 3}, {1, 2, 3}), 1u);
  EXPECT_EQ(distance({1, 9, 3}, {1, 2, 3}), 1u);
  EXPECT_EQ(distance({2, 1, 3}, {1, 2, 3}), 2u);
}

TEST(EditDistanceTest, MatchesReferenceOnRandomSequences) {
  std::mt19937 random(3);
  const auto any = [&random] {
    Labels labels(random() % 7);
    for (int64_t& label : labels) label = static_cast<int64_t>(random() % 3);
    return labels;
  };
  for (int i = 0; i < 300; ++i) {
    const Labels one = any(), other = any();
    ASSERT_EQ(distance(one, other), slow_distance(one, other));
    ASSERT_EQ(distance(one, other), distance(other, one));
  }
}

TEST(CollapseTest, MergesRepeatsThenDropsBlanks) {
  const auto collapsed = [](Labels path) {
    const auto labels = collapse(path, 0);
    return Labels(labels.begin(), labels.end());
  };
  EXPECT_EQ(collapsed({0, 1, 1, 0, 1, 2, 2, 0}), (Labels{1, 1, 2}));
  EXPECT_EQ(collapsed({3, 3, 3}), (Labels{3}));
  EXPECT_EQ(collapsed({0, 0}), Labels{});
  EXPECT_EQ(collapsed({}), Labels{});
}

TEST(LabelErrorRateTest, DividesErrorsByTotalLabelsOfAllSamples) {
  LabelErrorRate score;
  score.add(2, Labels{1, 2}, Labels{1, 2});
  score.add(4, Labels{5}, Labels{1, 2, 3, 4});
  score.add(0, Labels{}, Labels{});
  const auto metrics = score.report().metrics;
  EXPECT_EQ(metrics[0], (std::pair<std::string, double>("loss", 2)));
  EXPECT_EQ(metrics[1], (std::pair<std::string, double>("label_error_rate", 4.0 / 6)));
  EXPECT_EQ(metrics[2], (std::pair<std::string, double>("exact_match", 2.0 / 3)));
}

TEST(LabelErrorRateTest, ReturnsNanWithoutSamples) {
  for (const auto& [name, value] : LabelErrorRate().report().metrics)
    EXPECT_TRUE(std::isnan(value)) << name;
}

std::map<std::string, double> by_name(const EvalReport& report) {
  return {report.metrics.begin(), report.metrics.end()};
}

// Three labels of four samples. The third is never true and is predicted once.
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
  EXPECT_DOUBLE_EQ(values["exact_match"], 0.5);  // the first and the last sample
  // Label 0: 3 true, 2 predicted, both correctly. Label 1: 1 true, 2 predicted, 1 correctly.
  EXPECT_DOUBLE_EQ(values["micro_f1"], 2 * 3.0 / (4 + 5));
  EXPECT_DOUBLE_EQ(values["macro_f1"], (4.0 / 5 + 2.0 / 3 + 0) / 3);
  // Label 0 is ranked perfectly: 1. The true sample of label 1 shares the highest logit with a
  // false one.
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
