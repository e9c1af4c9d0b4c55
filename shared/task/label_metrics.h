// LabelMetrics: classification metrics from logits and labels.
//
// Threads: one.
// Errors:  exceptions of LibTorch are propagated, for example for a label that is not a class.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/eval_metrics/eval_metrics.h"
#include "shared/task/task.h"

namespace stoker::task {

class LabelMetrics {
 public:
  // `classes`: number of classes in the data; the model may have more outputs. `weights`: one per
  // class of the data, or empty. `maybe_gamma`: as in label_losses().
  LabelMetrics(uint64_t classes, const EvaluationOptions& options, std::vector<double> weights,
               std::optional<double> maybe_gamma = {})
      : classes_(classes),
        options_(options),
        weights_(std::move(weights)),
        maybe_gamma_(maybe_gamma) {}

  // `logits` F32 [samples, outputs], with the same number of outputs in every call; `labels` I64
  // [samples].
  void add(const at::Tensor& logits, const at::Tensor& labels);
  eval_metrics::EvalReport report() const;

 private:
  void start(uint64_t outputs);
  at::Tensor is_in_top_k(const at::Tensor& logits, const at::Tensor& labels) const;

  const uint64_t classes_;
  const EvaluationOptions options_;
  const std::vector<double> weights_;
  const std::optional<double> maybe_gamma_;
  int top_k_ = 0;
  bool has_pr_curves_ = false;
  std::optional<eval_metrics::ClassificationMetrics> metrics_;  // set by the first batch
};

}  // namespace stoker::task
