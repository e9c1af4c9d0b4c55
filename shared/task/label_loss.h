// LabelLoss: cross entropy of labelled answers, in nats, with weights of classes and smoothed labels:
// torch.nn.functional.cross_entropy(weight=…, label_smoothing=…), its mean weighted as there.
//
// Threads: as ClassWeights.
// Errors:  LibTorch's exceptions pass through, such as for a label that is no class.
#pragma once

#include <tuple>
#include <utility>

#include <ATen/core/Tensor.h>

#include "shared/task/class_weights.h"

namespace stoker::task {

// PyTorch's ignore_index: a label that counts nowhere.
inline constexpr int64_t kIgnoredLabel = -100;

// Rows of `logits` and their `labels` [samples] that count. Asks the device how many there are.
std::tuple<at::Tensor, at::Tensor> drop_ignored_labels(const at::Tensor& logits,
                                                       const at::Tensor& labels);

class LabelLoss {
 public:
  LabelLoss(ClassWeights weights, double smoothing)
      : weights_(std::move(weights)), smoothing_(smoothing) {}

  // `logits` F32 [samples, outputs]. `labels` I64 [samples], or shares of each class F32 [samples,
  // outputs]. The mean over the samples; with weights and I64 labels the weighted one.
  at::Tensor mean(const at::Tensor& logits, const at::Tensor& labels) const;
  // The same where some labels are kIgnoredLabel: the mean over the others, 0 where there are none.
  at::Tensor mean_over_valid(const at::Tensor& logits, const at::Tensor& labels) const;
  const ClassWeights& weights() const { return weights_; }

 private:
  const ClassWeights weights_;
  const double smoothing_;
};

}  // namespace stoker::task
