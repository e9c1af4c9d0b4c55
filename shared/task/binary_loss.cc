#include "shared/task/binary_loss.h"

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/sigmoid.h>

#include "shared/task/label_loss.h"

namespace stoker::task {

at::Tensor BinaryLoss::cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                     int64_t reduction) const {
  const auto maybe_weights =
      pos_weight_.has_weights() ? std::optional(pos_weight_.matching(logits)) : std::nullopt;
  return at::binary_cross_entropy_with_logits(logits, targets, {}, maybe_weights, reduction);
}

// Milletari et al., 2016. [samples, 1]
at::Tensor BinaryLoss::dice(const at::Tensor& logits, const at::Tensor& targets) const {
  const at::Tensor probability = at::sigmoid(logits);
  const auto sum = [](const at::Tensor& values) { return values.sum(1, /*keepdim=*/true); };
  const at::Tensor common = sum(probability * targets);
  return 1 - (2 * common + smooth_) / (sum(probability) + sum(targets) + smooth_);
}

at::Tensor BinaryLoss::of_each(const at::Tensor& logits, const at::Tensor& targets) const {
  if (loss_ == config::BinaryLoss::kDice) return dice(logits, targets).expand_as(logits);
  const at::Tensor loss = cross_entropy(logits, targets, at::Reduction::None);
  if (loss_ == config::BinaryLoss::kBce) return loss;
  const at::Tensor probability = at::sigmoid(logits);
  // Of the other label than that of the target.
  const at::Tensor other = probability * (1 - targets) + (1 - probability) * targets;
  const at::Tensor focal = loss * focal_factor(other, gamma_);
  return alpha_ ? focal * (*alpha_ * targets + (1 - *alpha_) * (1 - targets)) : focal;
}

at::Tensor BinaryLoss::mean(const at::Tensor& logits, const at::Tensor& targets) const {
  switch (loss_) {
    case config::BinaryLoss::kBce:
      return cross_entropy(logits, targets, at::Reduction::Mean);
    case config::BinaryLoss::kFocal:
      return of_each(logits, targets).mean();
    case config::BinaryLoss::kDice:
      return dice(logits, targets).mean();
  }
  return {};
}

}  // namespace stoker::task
