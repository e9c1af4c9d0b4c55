// ClassificationScore: loss, accuracy, top-k, precision, recall and F1 of labelled samples.
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

#include "shared/score/report.h"

namespace stoker::score {

// Of one batch, a value a sample each.
struct ClassifiedSamples {
  std::span<const float> losses;
  std::span<const int64_t> labels;
  std::span<const int64_t> predictions;
  std::span<const float> confidences;    // in the prediction
  std::span<const uint8_t> is_in_top_k;  // 1: the label is among the k most likely; empty: no k
};

class ClassificationScore {
 public:
  struct Settings {
    uint64_t classes = 0;
    int top_k = 0;        // 0: no such metric
    size_t mistakes = 0;  // how many to remember
    // Of each class: what a sample whose label it is counts in the loss; those that are not there 1.
    std::vector<double> weights = {};
  };
  explicit ClassificationScore(Settings settings);

  // Labels and predictions must be below `classes`.
  void add(const ClassifiedSamples& batch);
  Report report() const;

 private:
  void remember(const Mistake& mistake);
  ClassFigures figures_of(size_t label) const;
  MetricValues metrics(const std::vector<ClassFigures>& figures) const;

  const Settings settings_;
  double loss_ = 0;
  double weight_ = 0;  // of all labels
  uint64_t samples_ = 0;
  uint64_t right_in_all_ = 0;
  uint64_t in_top_k_ = 0;
  std::vector<uint64_t> labelled_, predicted_, right_;  // by class
  Confusion confusion_;
  std::vector<Mistake> mistakes_;  // the worst first
};

}  // namespace stoker::score
