#include "shared/score/multi_label_score.h"

#include <algorithm>
#include <string>

namespace stoker::score {
namespace {

constexpr float kTrueAbove = 0.5F;  // targets are 0 or 1

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

void MultiLabelScore::add(std::span<const float> losses, std::span<const float> logits,
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
      label.right += is_true && predicted ? 1 : 0;
      label.answers.push_back({logits[first + i], is_true});
      is_exact = is_exact && is_true == predicted;
      loss_ += static_cast<double>(losses[first + i]);
    }
    samples_ += 1;
    exact_ += is_exact ? 1 : 0;
  }
}

ClassFigures MultiLabelScore::figures_of(const Label& label) {
  const auto right = static_cast<double>(label.right);
  const auto is_true = static_cast<double>(label.is_true);
  const auto predicted = static_cast<double>(label.predicted);
  return {.name = {},
          .samples = label.is_true,
          .precision = ratio(right, predicted),
          .recall = ratio(right, is_true),
          .f1 = ratio(2 * right, is_true + predicted)};
}

// The sum over thresholds, from the highest, of what each adds to the recall times the precision
// there. Answers with the same logit are one threshold.
double MultiLabelScore::average_precision(std::vector<Answer> answers) {
  std::ranges::stable_sort(answers, std::ranges::greater(), &Answer::logit);
  double sum = 0, right = 0, right_before = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    right += answers[i].is_true ? 1 : 0;
    if (i + 1 < answers.size() && answers[i + 1].logit == answers[i].logit) continue;
    sum += (right - right_before) * right / static_cast<double>(i + 1);
    right_before = right;
  }
  return ratio(sum, right);
}

double MultiLabelScore::mean_average_precision() const {
  double sum = 0, occurring = 0;
  for (const Label& label : labels_) {
    if (label.is_true == 0) continue;
    sum += average_precision(label.answers);
    occurring += 1;
  }
  return sum / occurring;
}

Report MultiLabelScore::report() const {
  Report report;
  double f1 = 0, occurring = 0, right = 0, marked = 0;  // marked: true, and predicted
  for (const Label& label : labels_) {
    ClassFigures figures = figures_of(label);
    figures.name = std::to_string(report.classes.size());
    right += static_cast<double>(label.right);
    marked += static_cast<double>(label.is_true + label.predicted);
    occurring += label.is_true + label.predicted > 0 ? 1 : 0;
    f1 += figures.f1;
    report.classes.push_back(std::move(figures));
  }
  const double numbers = samples_ * static_cast<double>(labels_.size());
  report.metrics = {{"loss", loss_ / numbers},
                    {"exact_match", exact_ / samples_},
                    {"micro_f1", ratio(2 * right, marked)},
                    {"macro_f1", f1 / occurring},
                    {"mean_average_precision", mean_average_precision()}};
  if (report.classes.size() > kMostClassFigures) report.classes.clear();
  return report;
}

}  // namespace stoker::score
