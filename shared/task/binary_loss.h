// BinaryLoss: the loss of independent binary labels: torch.nn.functional.binary_cross_entropy_with_logits
// with pos_weight, torchvision.ops.sigmoid_focal_loss of it, or the Dice loss of each sample.
//
// Threads: as ClassWeights.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "shared/config/training_config.h"
#include "shared/task/class_weights.h"

namespace stoker::task {

class BinaryLoss {
 public:
  // `config`: BinaryClassificationTask or MultilabelClassificationTask.
  BinaryLoss(const auto& config, ClassWeights pos_weight)
      : loss_(config.loss),
        gamma_(config.gamma),
        alpha_(config.alpha),
        pos_weight_(std::move(pos_weight)) {
    if constexpr (requires { config.smooth; }) smooth_ = config.smooth;
  }

  // `logits` F32 [samples, labels]; `targets` F32 of the same shape, 0 or 1. Of each label; the Dice loss
  // of a sample for each of its labels.
  at::Tensor of_each(const at::Tensor& logits, const at::Tensor& targets) const;
  at::Tensor mean(const at::Tensor& logits, const at::Tensor& targets) const;

 private:
  at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                           int64_t reduction) const;

  at::Tensor dice(const at::Tensor& logits, const at::Tensor& targets) const;

  const config::BinaryLoss loss_;
  const double gamma_;
  const std::optional<double> alpha_;
  const ClassWeights pos_weight_;
  double smooth_ = 0;  // of the Dice loss
};

}  // namespace stoker::task
