// LabelScorer: figures of classification from what a model says of labelled samples.
//
// Threads: one.
// Errors:  LibTorch's exceptions pass through, such as for a label that is no class.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/score/classification_score.h"
#include "shared/task/task.h"

namespace stoker::task {

class LabelScorer {
 public:
  // `classes` of the data; a model may know more. `weights` of the data's classes, or none.
  LabelScorer(uint64_t classes, const EvaluationSettings& settings, std::vector<double> weights)
      : classes_(classes), settings_(settings), weights_(std::move(weights)) {}

  // `logits` F32 [samples, outputs], always as many outputs; `labels` I64 [samples].
  void add(const at::Tensor& logits, const at::Tensor& labels);
  score::Report report() const;

 private:
  void start(uint64_t outputs);
  at::Tensor is_in_top_k(const at::Tensor& logits, const at::Tensor& labels) const;

  const uint64_t classes_;
  const EvaluationSettings settings_;
  const std::vector<double> weights_;
  int top_k_ = 0;
  std::optional<score::ClassificationScore> score_;  // from the first batch on
};

}  // namespace stoker::task
