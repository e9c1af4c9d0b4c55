// LabelLoss: cross entropy in nats with class weights and label smoothing:
// torch.nn.functional.cross_entropy(weight=…, label_smoothing=…), including its weighted mean; or the focal
// loss of Lin et al., 2017, of labels: cross entropy times (1 - p)^gamma, with the same mean.
//
// Threads: as ClassWeights.
// Errors:  exceptions of LibTorch are propagated, for example for a label that is not a class.
#pragma once

#include <optional>
#include <tuple>
#include <utility>

#include <ATen/core/Tensor.h>

#include "shared/config/training_config.h"
#include "shared/task/class_weights.h"
#include "shared/task/task.h"

namespace stoker::task {

// PyTorch's ignore_index: labels with this value are excluded from loss and metrics.
inline constexpr int64_t kIgnoredLabel = -100;

// The labels I64 of the pixels of a mask U8: 255 becomes kIgnoredLabel.
at::Tensor pixel_labels(const at::Tensor& mask);

// Selects the rows of `logits` and `labels` [samples] whose label is not ignored. Synchronizes with
// the device to get their number.
std::tuple<at::Tensor, at::Tensor> drop_ignored_labels(const at::Tensor& logits,
                                                       const at::Tensor& labels);

// `loss` with the accuracy of `logits` [samples, outputs]. `labels` as in LabelLoss::mean(); of a
// mixed sample the label with the larger share counts.
LossAndMetric with_accuracy(LossTerm loss, const at::Tensor& logits, const at::Tensor& labels);
// As with_accuracy(), over the labels that are not kIgnoredLabel.
LossAndMetric with_accuracy_over_valid(LossTerm loss, const at::Tensor& logits,
                                       const at::Tensor& labels);
// `loss` with the mean of `values` as metric.
LossAndMetric with_mean(LossTerm loss, const at::Tensor& values);

// other^gamma, for the probability of all other labels. Its gradient is finite also at 0.
at::Tensor focal_factor(const at::Tensor& other, double gamma);
// The loss of each of `labels` I64 [samples], without weights and smoothing; 0 of kIgnoredLabel. `maybe_gamma`:
// of the focal loss.
at::Tensor label_losses(const at::Tensor& logits, const at::Tensor& labels,
                        std::optional<double> maybe_gamma);

class LabelLoss {
 public:
  LabelLoss(ClassWeights weights, double smoothing, std::optional<double> maybe_gamma = {})
      : weights_(std::move(weights)), smoothing_(smoothing), maybe_gamma_(maybe_gamma) {}
  // `config`: ClassificationTask or SequenceLabelingTask.
  static LabelLoss of(const auto& config, ClassWeights weights) {
    const bool is_focal = config.loss == config::ClassLoss::kFocal;
    return {std::move(weights), config.label_smoothing,
            is_focal ? std::optional(config.gamma) : std::nullopt};
  }

  // `logits` F32 [samples, outputs]. `labels` are class indices I64 [samples] or class
  // probabilities F32 [samples, outputs]. Over the samples; weighted if there are class weights and
  // `labels` are I64. Has a count if there are class weights.
  LossTerm mean(const at::Tensor& logits, const at::Tensor& labels) const;
  // As mean(), for labels that can be kIgnoredLabel: over the others. Has a count.
  LossTerm mean_over_valid(const at::Tensor& logits, const at::Tensor& labels) const;
  const ClassWeights& weights() const { return weights_; }
  std::optional<double> maybe_gamma() const { return maybe_gamma_; }  // of the focal loss

 private:
  const ClassWeights weights_;
  const double smoothing_;
  const std::optional<double> maybe_gamma_;
};

}  // namespace stoker::task
