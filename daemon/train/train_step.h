// TrainStep: computes the gradients of a step from its micro-batches and updates the parameters.
//
// Threads: the trainer thread only.
// Errors:  LibTorch's exceptions pass through.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/train/loss_scale.h"
#include "daemon/train/optimizer.h"
#include "daemon/train/step_observer.h"
#include "daemon/train/sum_tree.h"
#include "shared/config/training_config.h"
#include "shared/task/task.h"

namespace stoker::train {

// The number of values in the loss of a step, if all of each sample count; 0: each micro-batch has the
// same number.
double max_loss_count(const config::TrainConfig& config, const model::Model& model,
                      const task::Task& task);

// Of TrainingState::training_metrics().
inline constexpr size_t kMaxTrainingMetrics = model::kMaxStepMetrics;

// Why a step changes nothing, in the log.
inline constexpr std::string_view kNoLossValues =
    "no label or token of the step has a weight in the loss";

class TrainStep {
 public:
  // All arguments must outlive this object. Uses gradient_accumulation_steps and precision (the
  // autocast dtype of the forward pass) of `config`. `maybe_scale`: required for fp16, else null.
  // `own_micro_batches`: those of a step that this process adds, the others are added by other ranks;
  // 0: all.
  TrainStep(model::Model& model, const task::Task& task, Optimizer& optimizer,
            const config::TrainConfig& config, LossScale* maybe_scale = nullptr,
            int64_t own_micro_batches = 0);

  // Adds the gradients, the loss and the training metrics of a micro-batch; `is_first` resets loss()
  // and the metrics. On the CPU the memory of the batch is no longer used after the return. Does not wait for the device and can be
  // captured in a CUDA graph once it has run eagerly.
  void add(const task::Batch& batch, bool is_first = true);
  // After the last add(): the parameters that the step has reached on this process. Of several ranks, those of
  // any are set in the optimizer before finish().
  const Optimizer::Reached& settle_reached();
  // With distributed.reduction: ordered, after each add(), which then resets loss() and the metrics in
  // every micro-batch: adds the micro-batch to the tree of the step. See SumTree::add().
  void add_to_tree(int level, bool is_last);
  // After the last add_to_tree(), the tensors whose sums over all ranks are those of the step: the
  // gradients and F64 scalars.
  const std::vector<at::Tensor>& gradients_to_sum() const { return optimizer_.flat_gradients(); }
  std::vector<at::Tensor> scalars_to_sum() const;
  // With Optimizer::sums_own_gradients(), if scales_by_count(): before squares_to_sum(), loss_count() must
  // be summed over the ranks and scale_by_count() be called. Otherwise finish() calls it.
  bool scales_by_count() const { return max_count_ > 0 && accumulate_ > 1; }
  void scale_by_count();
  // With Optimizer::sums_own_gradients(), after these are summed: further scalars. Else empty.
  std::vector<at::Tensor> squares_to_sum();
  // Clips the gradients, updates at the optimizer's learning rate and zeroes the gradients. Returns
  // the gradient norm before clipping, on the device. A step whose loss has no values changes nothing;
  // the optimizer's skipped() then is 1.
  at::Tensor finish();
  // Same as finish(), but changes no parameter if the gradient is not finite or, with `and_loss`,
  // if the loss is not finite, or if `maybe_found_inf`, an F32 scalar on the device, is 1. The optimizer's
  // skipped() then is 1.
  at::Tensor finish_if_finite(bool and_loss, const at::Tensor& maybe_found_inf = {});
  // Sets the observer of the phases; null: none. The observer must outlive its use here.
  void set_observer(StepObserver* maybe_observer) { maybe_observer_ = maybe_observer; }
  // Discards the gradients since the last finish().
  void drop();

  // After finish(), the loss of the step: the sum over all values divided by their count. Before, its
  // part of the micro-batches so far, by max_count() instead of the count. F64 scalar on the device.
  const at::Tensor& loss() const { return loss_; }
  // The number of values in the loss, or the sum of their weights; a scalar on the device. Undefined:
  // all micro-batches have the same.
  const at::Tensor& maybe_loss_count() const { return loss_count_; }
  // Of a step; 0: all micro-batches have the same.
  double max_count() const { return max_count_; }
  // The task's training metrics of the step: see task::LossAndMetric.
  const at::Tensor& metric_sum() const { return metric_sum_; }
  int64_t metric_count() const { return metric_count_; }
  const at::Tensor& maybe_device_count() const { return maybe_device_count_; }
  uint64_t tree_bytes() const { return gradient_tree_.bytes() + scalar_tree_.bytes(); }

 private:
  void add_metrics(const task::LossAndMetric& computed, bool is_first);
  // Adds the value of a micro-batch to that of the step.
  void accumulate(at::Tensor& sum, const at::Tensor& value, bool is_first) const;
  // Adds the loss to that of the step; returns what the backward pass starts from.
  at::Tensor add_loss(task::LossTerm term, bool is_first);
  at::Tensor is_empty() const;

  model::Model& model_;
  const task::Task& task_;
  Optimizer& optimizer_;
  LossScale* const maybe_scale_;
  const int64_t accumulate_;
  // The losses of micro-batches are divided by it before the backward pass, and the gradients are
  // multiplied by it and divided by the count once, when the count of the step is known.
  const double max_count_;
  const std::optional<at::ScalarType> autocast_;
  StepObserver* maybe_observer_ = nullptr;
  at::Tensor loss_, loss_count_;
  at::Tensor metric_sum_, maybe_device_count_;
  int64_t metric_count_ = 0;
  const int64_t own_micro_batches_;
  int64_t num_noted_ = 0;  // of the step, for Optimizer::note_reached()
  SumTree gradient_tree_, scalar_tree_;
};

}  // namespace stoker::train
