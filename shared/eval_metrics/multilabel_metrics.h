// MultilabelMetrics: loss, F1, average precision and exact matches of samples of which each label is
// true or not by itself.
//
// A label counts as predicted where its logit is above 0, so where the model finds it likelier than
// not. Sums are in double and in the order of the samples. Averages over labels ("macro") are over
// those that occur, as a target or as a prediction; mean average precision is over those that are
// true of at least one sample. Both are scikit-learn's.
//
// Threads: one.
// Memory:  average precision needs the order of all logits of a label: 8 bytes a sample and label.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shared/eval_metrics/eval_report.h"

namespace stoker::eval_metrics {

class MultilabelMetrics {
 public:
  // `labels`: how many there are.
  explicit MultilabelMetrics(size_t labels) : labels_(labels) {}

  // All [samples, labels]; a target above one half is true.
  void add(std::span<const float> losses, std::span<const float> logits,
           std::span<const float> targets);
  EvalReport report() const;

 private:
  struct Prediction {
    float logit;
    bool is_true;
  };
  struct Label {
    uint64_t is_true = 0, predicted = 0, correct = 0;
    std::vector<Prediction> predictions;
  };
  static PerClassMetrics compute_per_class(const Label& label);
  static double average_precision(std::vector<Prediction> predictions);
  double mean_average_precision() const;

  std::vector<Label> labels_;
  double loss_ = 0;
  double samples_ = 0;
  double exact_ = 0;  // samples of which all labels were predicted rightly
};

}  // namespace stoker::eval_metrics
