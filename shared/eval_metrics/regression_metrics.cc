#include "shared/eval_metrics/regression_metrics.h"

#include <cmath>
#include <limits>

namespace stoker::eval_metrics {

void RegressionMetrics::add(std::span<const float> outputs, std::span<const float> targets) {
  const size_t width = columns_.size();
  for (size_t first = 0; first + width <= targets.size(); first += width) {
    samples_ += 1;
    for (size_t i = 0; i < width; ++i) {
      const auto target = static_cast<double>(targets[first + i]);
      const double error = static_cast<double>(outputs[first + i]) - target;
      Column& column = columns_[i];
      column.squares += error * error;
      absolute_ += std::abs(error);
      // Welford: nothing is lost where the mean is far from zero.
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
  report.metrics = {{"loss", squares / count}, {"mae", absolute_ / count}, {"r2", r2()}};
  return report;
}

// The mean over the columns of 1 - residual / spread; a constant column counts 1 where it is met
// exactly and 0 otherwise.
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

}  // namespace stoker::eval_metrics
