// LabelMetrics: figures of classification from what a model says of labelled samples.
//
// Threads: one.
// Errors:  LibTorch's exceptions pass through, such as for a label that is no class.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/eval_metrics/classification_metrics.h"
#include "shared/task/task.h"

namespace stoker::task {

class LabelMetrics {
 public:
  // `classes` of the data; a model may know more. `weights` of the data's classes, or none.
  LabelMetrics(uint64_t classes, const EvaluationOptions& options, std::vector<double> weights)
      : classes_(classes), options_(options), weights_(std::move(weights)) {}

  // `logits` F32 [samples, outputs], always as many outputs; `labels` I64 [samples].
  void add(const at::Tensor& logits, const at::Tensor& labels);
  eval_metrics::EvalReport report() const;

 private:
  void start(uint64_t outputs);
  at::Tensor is_in_top_k(const at::Tensor& logits, const at::Tensor& labels) const;

  const uint64_t classes_;
  const EvaluationOptions options_;
  const std::vector<double> weights_;
  int top_k_ = 0;
  std::optional<eval_metrics::ClassificationMetrics> metrics_;  // from the first batch on
};

}  // namespace stoker::task
