#include "shared/task/label_loss.h"

#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

namespace stoker::task {
namespace {

constexpr double kMinWeight = 1e-30;  // avoids a division by 0

std::optional<at::Tensor> to_optional(const at::Tensor& weights) {
  return weights.defined() ? std::optional(weights) : std::nullopt;
}

}  // namespace

at::Tensor pixel_labels(const at::Tensor& mask) {
  constexpr int64_t kIgnoredClass = 255;
  const at::Tensor labels = mask.to(at::kLong);
  return labels.masked_fill(labels.eq(kIgnoredClass), kIgnoredLabel);
}

std::tuple<at::Tensor, at::Tensor> drop_ignored_labels(const at::Tensor& logits,
                                                       const at::Tensor& labels) {
  const at::Tensor valid = labels.ne(kIgnoredLabel).nonzero().squeeze(1);
  return {logits.index_select(0, valid), labels.index_select(0, valid)};
}

LossAndMetric with_accuracy(LossTerm loss, const at::Tensor& logits, const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  const at::Tensor classes = labels.is_floating_point() ? labels.argmax(1) : labels;
  return with_mean(std::move(loss), logits.argmax(1).eq(classes));
}

LossAndMetric with_accuracy_over_valid(LossTerm loss, const at::Tensor& logits,
                                       const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  // An ignored label is no output, so it is never predicted.
  LossAndMetric result = with_accuracy(std::move(loss), logits, labels);
  result.maybe_device_count = labels.ne(kIgnoredLabel).sum();
  return result;
}

LossAndMetric with_mean(LossTerm loss, const at::Tensor& values) {
  return {.loss = std::move(loss), .metric_sum = values.sum(), .metric_count = values.numel()};
}

at::Tensor focal_factor(const at::Tensor& other, double gamma) {
  constexpr double kLeast = 1e-12;
  return other.clamp_min(kLeast).pow(gamma);
}

at::Tensor label_losses(const at::Tensor& logits, const at::Tensor& labels,
                        std::optional<double> maybe_gamma) {
  const at::Tensor losses =
      at::cross_entropy_loss(logits, labels, {}, at::Reduction::None, kIgnoredLabel);
  return maybe_gamma ? losses * focal_factor(1 - losses.neg().exp(), *maybe_gamma) : losses;
}

LossTerm LabelLoss::mean(const at::Tensor& logits, const at::Tensor& labels) const {
  if (maybe_gamma_ && !weights_.has_weights())
    return {label_losses(logits, labels, maybe_gamma_).mean(), at::Tensor()};
  if (weights_.has_weights() && !labels.is_floating_point()) return mean_over_valid(logits, labels);
  at::Tensor count;  // of class probabilities PyTorch counts the samples, also with weights
  if (weights_.has_weights())
    count = at::full({}, static_cast<double>(logits.size(0)), logits.options());
  return {at::cross_entropy_loss(logits, labels, to_optional(weights_.matching(logits)),
                                 at::Reduction::Mean, kIgnoredLabel, smoothing_),
          std::move(count)};
}

// LibTorch's own mean is NaN if all labels are ignored, and synchronizes with the device to count
// them.
LossTerm LabelLoss::mean_over_valid(const at::Tensor& logits, const at::Tensor& labels) const {
  const at::Tensor& weights = weights_.matching(logits);
  const at::Tensor counts = labels.ne(kIgnoredLabel);
  const at::Tensor weight =
      weights.defined() ? weights.index_select(0, labels.mul(counts)).mul(counts) : counts;
  const at::Tensor sum =
      maybe_gamma_ ? (label_losses(logits, labels, maybe_gamma_) * weight).sum()
                   : at::cross_entropy_loss(logits, labels, to_optional(weights),
                                            at::Reduction::Sum, kIgnoredLabel, smoothing_);
  const at::Tensor total = weight.sum().to(at::kFloat);
  // With label smoothing, the sum of labels whose weight is 0 is that of the other classes.
  return {at::where(total.gt(0), sum.div(total.clamp_min(kMinWeight)), sum), total};
}

}  // namespace stoker::task
