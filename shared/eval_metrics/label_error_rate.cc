#include "shared/eval_metrics/label_error_rate.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace stoker::eval_metrics {

uint64_t edit_distance(std::span<const int64_t> one, std::span<const int64_t> other) {
  // row[j]: the distance of what was seen of `one` to the first j of `other`.
  std::vector<uint64_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < one.size(); ++i) {
    uint64_t diagonal = row[0];  // the row before, one column to the left
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
