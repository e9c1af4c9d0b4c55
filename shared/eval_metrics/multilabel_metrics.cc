#include "shared/eval_metrics/multilabel_metrics.h"

#include <algorithm>
#include <string>

namespace stoker::eval_metrics {
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

// The sum over thresholds, from the highest, of what each adds to the recall times the precision
// there. Answers with the same logit are one threshold.
double MultilabelMetrics::average_precision(std::vector<Prediction> predictions) {
  std::ranges::stable_sort(predictions, std::ranges::greater(), &Prediction::logit);
  double sum = 0, correct = 0, right_before = 0;
  for (size_t i = 0; i < predictions.size(); ++i) {
    correct += predictions[i].is_true ? 1 : 0;
    if (i + 1 < predictions.size() && predictions[i + 1].logit == predictions[i].logit) continue;
    sum += (correct - right_before) * correct / static_cast<double>(i + 1);
    right_before = correct;
  }
  return ratio(sum, correct);
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
  double f1 = 0, occurring = 0, correct = 0, marked = 0;  // marked: true, and predicted
  for (const Label& label : labels_) {
    PerClassMetrics per_class = compute_per_class(label);
    per_class.name = std::to_string(report.classes.size());
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

}  // namespace stoker::eval_metrics
