// TrainStep: computes the gradients of a step from its micro-batches and updates the parameters.
//
// Threads: the trainer thread only.
// Errors:  LibTorch's exceptions pass through.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/train/loss_scale.h"
#include "daemon/train/optimizer.h"
#include "daemon/train/step_observer.h"
#include "daemon/train/sum_tree.h"
#include "shared/config/training_config.h"
#include "shared/task/task.h"

namespace stoker::train {

class TrainStep {
 public:
  // All arguments must outlive this object. Uses gradient_accumulation_steps and precision (the
  // autocast dtype of the forward pass) of `config`. `maybe_scale`: required for fp16, else null.
  // `own_micro_batches`: those of a step that this process adds, the others are added by other ranks;
  // 0: all.
  TrainStep(model::Model& model, const task::Task& task, Optimizer& optimizer,
            const config::TrainConfig& config, LossScale* maybe_scale = nullptr,
            int64_t own_micro_batches = 0);

  // Adds the gradients, the loss and the training metric of a micro-batch; `is_first` resets loss()
  // and the metric. On the CPU the memory of the batch is no longer used after the return. Does not wait for the device and can be
  // captured in a CUDA graph once it has run eagerly.
  void add(const task::Batch& batch, bool is_first = true);
  // With distributed.reduction: ordered, after each add(), which then resets loss() and the metric in
  // every micro-batch: adds the micro-batch to the tree of the step. See SumTree::add().
  void add_to_tree(int level, bool is_last);
  // After the last add_to_tree(), the tensors whose sums over all ranks are those of the step: the
  // gradients and F64 scalars.
  const std::vector<at::Tensor>& gradients_to_sum() const { return optimizer_.flat_gradients(); }
  std::vector<at::Tensor> scalars_to_sum() const;
  // With Optimizer::sums_own_gradients(), after these are summed: further scalars. Else empty.
  std::vector<at::Tensor> squares_to_sum();
  // Clips the gradients, updates at the optimizer's learning rate and zeroes the gradients. Returns
  // the gradient norm before clipping, on the device.
  at::Tensor finish();
  // Same as finish(), but changes no parameter if the gradient is not finite or, with `and_loss`,
  // if the loss is not finite. The optimizer's skipped() then is 1.
  at::Tensor finish_if_finite(bool and_loss);
  // Sets the observer of the phases; null: none. The observer must outlive its use here.
  void set_observer(StepObserver* maybe_observer) { maybe_observer_ = maybe_observer; }
  // Discards the gradients since the last finish().
  void drop();

  // The mean loss of the step's micro-batches so far, or with add_to_tree() of all of them; F64 scalar
  // on the device.
  const at::Tensor& loss() const { return loss_; }
  // The task's training metric of the step: see task::LossAndMetric.
  const at::Tensor& metric_sum() const { return metric_sum_; }
  int64_t metric_count() const { return metric_count_; }
  const at::Tensor& maybe_device_count() const { return maybe_device_count_; }
  uint64_t tree_bytes() const { return gradient_tree_.bytes() + scalar_tree_.bytes(); }

 private:
  void add_metric(const task::LossAndMetric& computed, bool is_first);
  // Adds the value of a micro-batch to that of the step.
  void accumulate(at::Tensor& sum, const at::Tensor& value, bool is_first) const;

  model::Model& model_;
  const task::Task& task_;
  Optimizer& optimizer_;
  LossScale* const maybe_scale_;
  const int64_t accumulate_;
  const std::optional<at::ScalarType> autocast_;
  StepObserver* maybe_observer_ = nullptr;
  at::Tensor loss_;
  at::Tensor metric_sum_, maybe_device_count_;
  int64_t metric_count_ = 0;
  SumTree gradient_tree_, scalar_tree_;
};

}  // namespace stoker::train
