// RegressionMetrics: mean squared error, mean absolute error and R² of predicted numbers.
//
// Sums are in double and in the order of the samples: however these are cut into batches, the
// figures are the same to the last bit.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shared/eval_metrics/eval_report.h"

namespace stoker::eval_metrics {

class RegressionMetrics {
 public:
  // `width`: numbers a sample.
  explicit RegressionMetrics(size_t width) : columns_(width) {}

  // Both [samples, width].
  void add(std::span<const float> outputs, std::span<const float> targets);
  EvalReport report() const;

 private:
  struct Column {
    double squares = 0;  // of the errors
    double mean = 0;     // of the targets
    double spread = 0;   // of the targets: squared distances from their mean
  };
  double r2() const;

  std::vector<Column> columns_;
  double absolute_ = 0;
  double samples_ = 0;
};

}  // namespace stoker::eval_metrics
