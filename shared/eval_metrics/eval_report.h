// EvalReport: what an evaluation found on one data set: numbers by name, and for classification what is
// behind them.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stoker::eval_metrics {

// In order; the first is the loss.
using MetricValues = std::vector<std::pair<std::string, double>>;

// Figures of each class, and the matrix, take a line or a row each in the result's file: not of
// more classes than somebody would look at.
inline constexpr uint64_t kMaxPerClassMetrics = 1000;
inline constexpr uint64_t kMaxConfusionClasses = 256;

// part / whole, or 0 where whole is 0: a class that was never predicted has precision 0.
inline double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

struct PerClassMetrics {
  std::string name;      // as the data set calls it, or its number
  uint64_t samples = 0;  // whose label it is
  double precision = 0;
  double recall = 0;
  double f1 = 0;

  bool operator==(const PerClassMetrics&) const = default;
};

// [label][prediction]
using ConfusionMatrix = std::vector<std::vector<uint64_t>>;

struct MisclassifiedSample {
  uint64_t sample = 0;  // counted from the first that was added
  int64_t label = 0;
  int64_t prediction = 0;
  double confidence = 0;  // the model's, in its prediction
  double loss = 0;

  bool operator==(const MisclassifiedSample&) const = default;
};

struct EvalReport {
  MetricValues metrics;
  std::vector<PerClassMetrics> classes;  // empty: no classes, or more than kMaxPerClassMetrics
  ConfusionMatrix confusion_matrix;      // empty: the same, kMaxConfusionClasses
  std::vector<MisclassifiedSample> misclassified;  // those with the largest loss, the worst first
};

}  // namespace stoker::eval_metrics
