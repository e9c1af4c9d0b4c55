#include "shared/eval_metrics/classification_metrics.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace stoker::eval_metrics {
namespace {

// A loss that is not a number is the worst there is.
double severity(const MisclassifiedSample& misclassified_sample) {
  return std::isnan(misclassified_sample.loss) ? std::numeric_limits<double>::infinity()
                                               : misclassified_sample.loss;
}

}  // namespace

ClassificationMetrics::ClassificationMetrics(Options options)
    : options_(options),
      labeled_(options.classes),
      predicted_(options.classes),
      correct_(options.classes) {
  if (options.classes <= kMaxConfusionClasses)
    confusion_.assign(options.classes, std::vector<uint64_t>(options.classes));
}

void ClassificationMetrics::add(const ClassifiedSamples& batch) {
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    const auto label = static_cast<size_t>(batch.labels[i]);
    const auto prediction = static_cast<size_t>(batch.predictions[i]);
    assert(label < options_.classes && prediction < options_.classes);
    const double weight = label < options_.weights.size() ? options_.weights[label] : 1.0;
    loss_ += weight * static_cast<double>(batch.losses[i]);
    weight_ += weight;
    ++labeled_[label];
    ++predicted_[prediction];
    if (!confusion_.empty()) ++confusion_[label][prediction];
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
                                                 severity);  // of equals the earlier sample first
  if (position == misclassified_.end() && misclassified_.size() >= options_.misclassified) return;
  misclassified_.insert(position, misclassified_sample);
  if (misclassified_.size() > options_.misclassified) misclassified_.pop_back();
}

PerClassMetrics ClassificationMetrics::compute_per_class(size_t label) const {
  const auto correct = static_cast<double>(correct_[label]);
  const auto labelled = static_cast<double>(labeled_[label]);
  const auto predicted = static_cast<double>(predicted_[label]);
  return {.name = std::to_string(label),
          .samples = labeled_[label],
          .precision = ratio(correct, predicted),
          .recall = ratio(correct, labelled),
          .f1 = ratio(2 * correct, labelled + predicted)};
}

MetricValues ClassificationMetrics::metrics(const std::vector<PerClassMetrics>& per_class) const {
  const auto samples = static_cast<double>(samples_);
  double precision = 0, recall = 0, f1 = 0, occurring = 0;
  for (size_t label = 0; label < per_class.size(); ++label) {
    if (labeled_[label] + predicted_[label] == 0) continue;
    precision += per_class[label].precision;
    recall += per_class[label].recall;
    f1 += per_class[label].f1;
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
  report.misclassified = misclassified_;
  return report;
}

}  // namespace stoker::eval_metrics
