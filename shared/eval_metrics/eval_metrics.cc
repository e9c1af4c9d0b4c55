#include "shared/eval_metrics/eval_metrics.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

namespace stoker::eval_metrics {
namespace {

// A NaN loss ranks as the worst.
double severity(const MisclassifiedSample& misclassified_sample) {
  return std::isnan(misclassified_sample.loss) ? std::numeric_limits<double>::infinity()
                                               : misclassified_sample.loss;
}

bool has_nan(const std::vector<ScoredSample>& samples) {
  return std::ranges::any_of(samples,
                             [](const ScoredSample& each) { return std::isnan(each.logit); });
}

}  // namespace

// Sum over thresholds, from the highest, of the recall increment times the precision at the
// threshold. Samples with equal logits share one threshold.
double average_precision(std::vector<ScoredSample> samples) {
  if (has_nan(samples)) return std::numeric_limits<double>::quiet_NaN();
  std::ranges::stable_sort(samples, std::ranges::greater(), &ScoredSample::logit);
  double sum = 0, correct = 0, right_before = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    correct += samples[i].is_positive ? 1 : 0;
    if (i + 1 < samples.size() && samples[i + 1].logit == samples[i].logit) continue;
    sum += (correct - right_before) * correct / static_cast<double>(i + 1);
    right_before = correct;
  }
  return ratio(sum, correct);
}

void PrCurveCounts::add(double probability, bool is_positive) {
  if (std::isnan(probability)) return;
  const auto bucket = static_cast<size_t>(std::clamp(probability, 0.0, 1.0) * (kPrThresholds - 1));
  ++(is_positive ? buckets_[bucket].positive : buckets_[bucket].negative);
}

void PrCurveCounts::add_logit(float logit, bool is_positive) {
  add(1 / (1 + std::exp(-static_cast<double>(logit))), is_positive);
}

PrCurve PrCurveCounts::curve(std::string name) const {
  PrCurve curve{.name = std::move(name),
                .true_positives = std::vector<uint64_t>(kPrThresholds),
                .false_positives = std::vector<uint64_t>(kPrThresholds)};
  uint64_t positive = 0, negative = 0;  // from the threshold on
  for (size_t i = kPrThresholds; i-- > 0;) {
    curve.true_positives[i] = positive += buckets_[i].positive;
    curve.false_positives[i] = negative += buckets_[i].negative;
  }
  return curve;
}

ClassificationMetrics::ClassificationMetrics(Options options)
    : options_(options),
      labeled_(options.classes),
      predicted_(options.classes),
      correct_(options.classes) {
  if (options.classes <= kMaxConfusionClasses)
    confusion_.assign(options.classes, std::vector<uint64_t>(options.classes));
}

void ClassificationMetrics::add_calibration(double confidence, bool is_correct) {
  if (std::isnan(confidence)) return;
  const auto bin = static_cast<size_t>(std::clamp(confidence, 0.0, 1.0) * kCalibrationBins);
  calibration_[bin].confidence += confidence;
  calibration_[bin].correct += is_correct ? 1 : 0;
}

// Naeini et al., 2015: the mean over the samples of |accuracy - mean confidence| of their bins.
double ClassificationMetrics::calibration_error() const {
  double error = 0;
  for (const CalibrationBin& bin : calibration_) error += std::abs(bin.correct - bin.confidence);
  return error / static_cast<double>(samples_);
}

void ClassificationMetrics::add(const ClassifiedSamples& batch) {
  if (!batch.probabilities.empty()) pr_curves_.resize(options_.classes);
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    const auto label = static_cast<size_t>(batch.labels[i]);
    for (size_t j = 0; j < pr_curves_.size(); ++j)
      pr_curves_[j].add(static_cast<double>(batch.probabilities[i * options_.classes + j]),
                        j == label);
    const auto prediction = static_cast<size_t>(batch.predictions[i]);
    assert(label < options_.classes && prediction < options_.classes);
    const double weight = label < options_.weights.size() ? options_.weights[label] : 1.0;
    loss_ += weight * static_cast<double>(batch.losses[i]);
    weight_ += weight;
    ++labeled_[label];
    ++predicted_[prediction];
    if (!confusion_.empty()) ++confusion_[label][prediction];
    add_calibration(static_cast<double>(batch.confidences[i]), label == prediction);
    if (!batch.is_in_top_k.empty()) in_top_k_ += batch.is_in_top_k[i];
    if (label == prediction) {
      ++correct_[label];
      ++total_correct_;
    } else {
      add_misclassified({samples_, batch.labels[i], batch.predictions[i],
                         static_cast<double>(batch.confidences[i]),
                         static_cast<double>(batch.losses[i])});
    }
    ++samples_;
  }
}

void ClassificationMetrics::add_misclassified(const MisclassifiedSample& misclassified_sample) {
  const auto position = std::ranges::upper_bound(misclassified_, severity(misclassified_sample),
                                                 std::ranges::greater(),
                                                 // For equal losses the earlier sample comes first.
                                                 severity);
  if (position == misclassified_.end() && misclassified_.size() >= options_.misclassified) return;
  misclassified_.insert(position, misclassified_sample);
  if (misclassified_.size() > options_.misclassified) misclassified_.pop_back();
}

PerClassMetrics ClassificationMetrics::compute_per_class(size_t label) const {
  const auto correct = static_cast<double>(correct_[label]);
  const auto labeled = static_cast<double>(labeled_[label]);
  const auto predicted = static_cast<double>(predicted_[label]);
  return {.name = std::to_string(label),
          .samples = labeled_[label],
          .precision = ratio(correct, predicted),
          .recall = ratio(correct, labeled),
          .f1 = ratio(2 * correct, labeled + predicted)};
}

MetricValues ClassificationMetrics::metrics(const std::vector<PerClassMetrics>& per_class) const {
  const auto samples = static_cast<double>(samples_);
  double precision = 0, recall = 0, f1 = 0, iou = 0, occurring = 0;
  for (size_t label = 0; label < per_class.size(); ++label) {
    if (labeled_[label] + predicted_[label] == 0) continue;
    precision += per_class[label].precision;
    recall += per_class[label].recall;
    f1 += per_class[label].f1;
    const uint64_t either = labeled_[label] + predicted_[label] - correct_[label];
    iou += ratio(static_cast<double>(correct_[label]), static_cast<double>(either));
    occurring += 1;
  }
  MetricValues values{{"loss", loss_ / weight_},
                      {"accuracy", static_cast<double>(total_correct_) / samples}};
  if (options_.top_k > 0)
    values.emplace_back("top" + std::to_string(options_.top_k) + "_accuracy",
                        static_cast<double>(in_top_k_) / samples);
  values.emplace_back("macro_precision", precision / occurring);
  values.emplace_back("macro_recall", recall / occurring);
  values.emplace_back("macro_f1", f1 / occurring);
  values.emplace_back("mean_iou", iou / occurring);
  values.emplace_back("calibration_error", calibration_error());
  return values;
}

EvalReport ClassificationMetrics::report() const {
  std::vector<PerClassMetrics> per_class;
  per_class.reserve(options_.classes);
  for (size_t label = 0; label < options_.classes; ++label)
    per_class.push_back(compute_per_class(label));
  EvalReport report;
  report.metrics = metrics(per_class);
  if (options_.classes <= kMaxPerClassMetrics) report.classes = std::move(per_class);
  report.confusion_matrix = confusion_;
  for (const PrCurveCounts& counts : pr_curves_)
    report.pr_curves.push_back(counts.curve(std::to_string(report.pr_curves.size())));
  report.misclassified = misclassified_;
  return report;
}

void BinaryClassificationMetrics::add(std::span<const float> losses, std::span<const float> logits,
                                      std::span<const int64_t> labels) {
  std::vector<int64_t> predictions;
  std::vector<float> confidences;
  predictions.reserve(logits.size());
  confidences.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    predictions.push_back(logits[i] > 0 ? 1 : 0);
    confidences.push_back(1 / (1 + std::exp(-std::abs(logits[i]))));
    predictions_.push_back({logits[i], labels[i] == 1});
    pr_curve_.add_logit(logits[i], labels[i] == 1);
  }
  counts_.add({losses, labels, predictions, confidences, {}});
}

// Over groups of equal logits, in ascending order: each positive sample exceeds the negative ones
// of earlier groups.
double BinaryClassificationMetrics::auroc(std::vector<ScoredSample> predictions) {
  if (has_nan(predictions)) return std::numeric_limits<double>::quiet_NaN();
  std::ranges::sort(predictions, {}, &ScoredSample::logit);
  double ordered_pairs = 0, positive = 0, negative = 0;
  for (size_t i = 0; i < predictions.size();) {
    double group_positive = 0, group_negative = 0;
    const float logit = predictions[i].logit;
    for (; i < predictions.size() && predictions[i].logit == logit; ++i)
      ++(predictions[i].is_positive ? group_positive : group_negative);
    ordered_pairs += group_positive * (negative + group_negative / 2);
    positive += group_positive;
    negative += group_negative;
  }
  return ordered_pairs / (positive * negative);
}

EvalReport BinaryClassificationMetrics::report() const {
  EvalReport report = counts_.report();
  const PerClassMetrics& positive = report.classes.at(1);
  const auto accuracy = report.metrics.at(1);
  assert(accuracy.first == "accuracy");
  report.metrics = {report.metrics.front(),
                    accuracy,
                    {"precision", positive.precision},
                    {"recall", positive.recall},
                    {"f1", positive.f1},
                    {"auroc", auroc(predictions_)},
                    {"average_precision", average_precision(predictions_)}};
  report.pr_curves = {pr_curve_.curve("1")};
  return report;
}

namespace {

constexpr float kTrueAbove = 0.5F;  // targets are 0 or 1

}  // namespace

void MultilabelMetrics::add(std::span<const float> losses, std::span<const float> logits,
                            std::span<const float> targets) {
  const size_t width = labels_.size();
  for (size_t first = 0; first + width <= targets.size(); first += width) {
    bool is_exact = true;
    for (size_t i = 0; i < width; ++i) {
      const bool is_true = targets[first + i] > kTrueAbove;
      const bool predicted = logits[first + i] > 0;
      Label& label = labels_[i];
      label.is_true += is_true ? 1 : 0;
      label.predicted += predicted ? 1 : 0;
      label.correct += is_true && predicted ? 1 : 0;
      label.predictions.push_back({logits[first + i], is_true});
      if (width <= kMaxPrCurves) label.pr_curve.add_logit(logits[first + i], is_true);
      is_exact = is_exact && is_true == predicted;
      loss_ += static_cast<double>(losses[first + i]);
    }
    samples_ += 1;
    exact_ += is_exact ? 1 : 0;
  }
}

PerClassMetrics MultilabelMetrics::compute_per_class(const Label& label) {
  const auto correct = static_cast<double>(label.correct);
  const auto is_true = static_cast<double>(label.is_true);
  const auto predicted = static_cast<double>(label.predicted);
  return {.name = {},
          .samples = label.is_true,
          .precision = ratio(correct, predicted),
          .recall = ratio(correct, is_true),
          .f1 = ratio(2 * correct, is_true + predicted)};
}

double MultilabelMetrics::mean_average_precision() const {
  double sum = 0, occurring = 0;
  for (const Label& label : labels_) {
    if (label.is_true == 0) continue;
    sum += average_precision(label.predictions);
    occurring += 1;
  }
  return sum / occurring;
}

EvalReport MultilabelMetrics::report() const {
  EvalReport report;
  // `marked`: number of true targets plus number of predicted labels.
  double f1 = 0, occurring = 0, correct = 0, marked = 0;
  for (const Label& label : labels_) {
    PerClassMetrics per_class = compute_per_class(label);
    per_class.name = std::to_string(report.classes.size());
    if (labels_.size() <= kMaxPrCurves)
      report.pr_curves.push_back(label.pr_curve.curve(per_class.name));
    correct += static_cast<double>(label.correct);
    marked += static_cast<double>(label.is_true + label.predicted);
    occurring += label.is_true + label.predicted > 0 ? 1 : 0;
    f1 += per_class.f1;
    report.classes.push_back(std::move(per_class));
  }
  const double numbers = samples_ * static_cast<double>(labels_.size());
  report.metrics = {{"loss", loss_ / numbers},
                    {"exact_match", exact_ / samples_},
                    {"micro_f1", ratio(2 * correct, marked)},
                    {"macro_f1", f1 / occurring},
                    {"mean_average_precision", mean_average_precision()}};
  if (report.classes.size() > kMaxPerClassMetrics) report.classes.clear();
  return report;
}

void RegressionMetrics::add(std::span<const float> losses, std::span<const float> outputs,
                            std::span<const float> targets) {
  const size_t width = columns_.size();
  for (size_t first = 0; first + width <= targets.size(); first += width) {
    samples_ += 1;
    for (size_t i = 0; i < width; ++i) {
      const auto target = static_cast<double>(targets[first + i]);
      const double error = static_cast<double>(outputs[first + i]) - target;
      Column& column = columns_[i];
      loss_ += static_cast<double>(losses[first + i]);
      column.squares += error * error;
      absolute_ += std::abs(error);
      // Welford's algorithm avoids cancellation when the mean is far from zero.
      const double apart = target - column.mean;
      column.mean += apart / samples_;
      column.spread += apart * (target - column.mean);
    }
  }
}

EvalReport RegressionMetrics::report() const {
  const double count = samples_ * static_cast<double>(columns_.size());
  double squares = 0;
  for (const Column& column : columns_) squares += column.squares;
  EvalReport report;
  report.metrics = {{"loss", loss_ / count},
                    {"mse", squares / count},
                    {"rmse", std::sqrt(squares / count)},
                    {"mae", absolute_ / count},
                    {"r2", r2()}};
  return report;
}

// Mean over the columns of 1 - residual / spread. A constant column counts as 1 if it is predicted
// exactly, otherwise 0.
double RegressionMetrics::r2() const {
  if (samples_ == 0) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const Column& column : columns_) {
    if (column.spread > 0)
      sum += 1 - column.squares / column.spread;
    else
      sum += column.squares == 0 ? 1 : 0;
  }
  return sum / static_cast<double>(columns_.size());
}

void LanguageModelingMetrics::add(std::span<const float> losses, std::span<const int64_t> targets,
                                  std::span<const int64_t> predictions) {
  for (size_t i = 0; i < losses.size(); ++i) {
    loss_ += static_cast<double>(losses[i]);
    correct_ += targets[i] == predictions[i] ? 1 : 0;
  }
  tokens_ += losses.size();
}

void LanguageModelingMetrics::add_replies(std::span<const int64_t> targets,
                                          std::span<const int64_t> predictions,
                                          std::span<const int64_t> begins) {
  for (size_t i = 0; i < targets.size();) {
    bool is_exact = true;
    do {
      is_exact = is_exact && targets[i] == predictions[i];
    } while (++i < targets.size() && begins[i] == 0);
    ++replies_;
    exact_replies_ += is_exact ? 1 : 0;
  }
}

EvalReport LanguageModelingMetrics::report() const {
  const auto tokens = static_cast<double>(tokens_);
  const double loss = loss_ / tokens;
  EvalReport report;
  report.metrics = {{"loss", loss},
                    {bytes_ ? "bits_per_byte" : "bits_per_token", loss / std::log(2.0)},
                    {"perplexity", std::exp(loss)},
                    {"accuracy", static_cast<double>(correct_) / tokens}};
  if (replies_ > 0)
    report.metrics.emplace_back(
        "exact_match", static_cast<double>(exact_replies_) / static_cast<double>(replies_));
  return report;
}

uint64_t edit_distance(std::span<const int64_t> one, std::span<const int64_t> other) {
  // row[j]: distance between the processed prefix of `one` and the first j elements of `other`.
  std::vector<uint64_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < one.size(); ++i) {
    uint64_t diagonal = row[0];  // value of the previous row, one column to the left
    row[0] = i + 1;
    for (size_t j = 0; j < other.size(); ++j) {
      const uint64_t replaced = diagonal + (one[i] == other[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::span<const int64_t> collapse(std::span<int64_t> path, int64_t blank) {
  const auto end = std::unique(path.begin(), path.end());
  return {path.begin(), std::remove(path.begin(), end, blank)};
}

void LabelErrorRate::add(float loss, std::span<const int64_t> decoded,
                         std::span<const int64_t> labels) {
  const uint64_t errors = edit_distance(decoded, labels);
  loss_ += static_cast<double>(loss);
  ++samples_;
  labels_ += labels.size();
  errors_ += errors;
  if (errors == 0) ++exact_;
}

EvalReport LabelErrorRate::report() const {
  const auto samples = static_cast<double>(samples_);
  EvalReport report;
  report.metrics = {
      {"loss", loss_ / samples},
      {"label_error_rate", static_cast<double>(errors_) / static_cast<double>(labels_)},
      {"exact_match", static_cast<double>(exact_) / samples}};
  return report;
}

}  // namespace stoker::eval_metrics
