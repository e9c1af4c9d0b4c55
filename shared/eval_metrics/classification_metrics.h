// ClassificationMetrics: loss, accuracy, top-k, precision, recall and F1 of labelled samples.
//
// Sums are in double and in the order of the samples: however these are cut into batches, the
// figures are the same to the last bit. Averages over classes ("macro") are over those that occur,
// as a label or as a prediction; scikit-learn does the same. Weights of classes are in the loss only.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shared/eval_metrics/eval_report.h"

namespace stoker::eval_metrics {

// Of one batch, a value a sample each.
struct ClassifiedSamples {
  std::span<const float> losses;
  std::span<const int64_t> labels;
  std::span<const int64_t> predictions;
  std::span<const float> confidences;    // in the prediction
  std::span<const uint8_t> is_in_top_k;  // 1: the label is among the k most likely; empty: no k
};

class ClassificationMetrics {
 public:
  struct Options {
    uint64_t classes = 0;
    int top_k = 0;             // 0: no such metric
    size_t misclassified = 0;  // how many to remember
    // Of each class: what a sample whose label it is counts in the loss; those that are not there 1.
    std::vector<double> weights = {};
  };
  explicit ClassificationMetrics(Options options);

  // Labels and predictions must be below `classes`.
  void add(const ClassifiedSamples& batch);
  EvalReport report() const;

 private:
  void add_misclassified(const MisclassifiedSample& misclassified_sample);
  PerClassMetrics compute_per_class(size_t label) const;
  MetricValues metrics(const std::vector<PerClassMetrics>& per_class) const;

  const Options options_;
  double loss_ = 0;
  double weight_ = 0;  // of all labels
  uint64_t samples_ = 0;
  uint64_t total_correct_ = 0;
  uint64_t in_top_k_ = 0;
  std::vector<uint64_t> labeled_, predicted_, correct_;  // by class
  ConfusionMatrix confusion_;
  std::vector<MisclassifiedSample> misclassified_;  // the worst first
};

}  // namespace stoker::eval_metrics
