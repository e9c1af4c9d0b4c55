#include "shared/score/classification_score.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace stoker::score {
namespace {

double ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

// A loss that is not a number is the worst there is.
double badness(const Mistake& mistake) {
  return std::isnan(mistake.loss) ? std::numeric_limits<double>::infinity() : mistake.loss;
}

}  // namespace

ClassificationScore::ClassificationScore(Settings settings)
    : settings_(settings),
      labelled_(settings.classes),
      predicted_(settings.classes),
      right_(settings.classes) {
  if (settings.classes <= kMostConfusionClasses)
    confusion_.assign(settings.classes, std::vector<uint64_t>(settings.classes));
}

void ClassificationScore::add(const ClassifiedSamples& batch) {
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    const auto label = static_cast<size_t>(batch.labels[i]);
    const auto prediction = static_cast<size_t>(batch.predictions[i]);
    assert(label < settings_.classes && prediction < settings_.classes);
    const double weight = label < settings_.weights.size() ? settings_.weights[label] : 1.0;
    loss_ += weight * static_cast<double>(batch.losses[i]);
    weight_ += weight;
    ++labelled_[label];
    ++predicted_[prediction];
    if (!confusion_.empty()) ++confusion_[label][prediction];
    if (!batch.is_in_top_k.empty()) in_top_k_ += batch.is_in_top_k[i];
    if (label == prediction) {
      ++right_[label];
      ++right_in_all_;
    } else {
      remember({samples_, batch.labels[i], batch.predictions[i],
                static_cast<double>(batch.confidences[i]), static_cast<double>(batch.losses[i])});
    }
    ++samples_;
  }
}

void ClassificationScore::remember(const Mistake& mistake) {
  const auto place = std::ranges::upper_bound(mistakes_, badness(mistake), std::ranges::greater(),
                                              badness);  // of equals the earlier sample first
  if (place == mistakes_.end() && mistakes_.size() >= settings_.mistakes) return;
  mistakes_.insert(place, mistake);
  if (mistakes_.size() > settings_.mistakes) mistakes_.pop_back();
}

ClassFigures ClassificationScore::figures_of(size_t label) const {
  const auto right = static_cast<double>(right_[label]);
  const auto labelled = static_cast<double>(labelled_[label]);
  const auto predicted = static_cast<double>(predicted_[label]);
  return {.name = std::to_string(label),
          .samples = labelled_[label],
          .precision = ratio(right, predicted),
          .recall = ratio(right, labelled),
          .f1 = ratio(2 * right, labelled + predicted)};
}

MetricValues ClassificationScore::metrics(const std::vector<ClassFigures>& figures) const {
  const auto samples = static_cast<double>(samples_);
  double precision = 0, recall = 0, f1 = 0, occurring = 0;
  for (size_t label = 0; label < figures.size(); ++label) {
    if (labelled_[label] + predicted_[label] == 0) continue;
    precision += figures[label].precision;
    recall += figures[label].recall;
    f1 += figures[label].f1;
    occurring += 1;
  }
  MetricValues values{{"loss", loss_ / weight_},
                      {"accuracy", static_cast<double>(right_in_all_) / samples}};
  if (settings_.top_k > 0)
    values.emplace_back("top" + std::to_string(settings_.top_k) + "_accuracy",
                        static_cast<double>(in_top_k_) / samples);
  values.emplace_back("macro_precision", precision / occurring);
  values.emplace_back("macro_recall", recall / occurring);
  values.emplace_back("macro_f1", f1 / occurring);
  return values;
}

Report ClassificationScore::report() const {
  std::vector<ClassFigures> figures;
  figures.reserve(settings_.classes);
  for (size_t label = 0; label < settings_.classes; ++label) figures.push_back(figures_of(label));
  Report report;
  report.metrics = metrics(figures);
  if (settings_.classes <= kMostClassFigures) report.classes = std::move(figures);
  report.confusion = confusion_;
  report.mistakes = mistakes_;
  return report;
}

}  // namespace stoker::score
