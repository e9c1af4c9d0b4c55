// TrainStep: from the micro-batches of one step to an update of the parameters.
//
// Threads: the trainer's thread only.
// Errors:  LibTorch's exceptions pass through.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "daemon/train/loss_scale.h"
#include "daemon/train/optimizer.h"
#include "daemon/train/step_observer.h"
#include "shared/config/training_config.h"
#include "shared/task/task.h"

namespace stoker::train {

class TrainStep {
 public:
  // All must outlive this object. Of `config` are read gradient_accumulation_steps and precision
  // (the format of the forward pass, under autocast). `maybe_scale`: with fp16.
  TrainStep(model::Model& model, const task::Task& task, Optimizer& optimizer,
            const config::TrainConfig& config, LossScale* maybe_scale = nullptr);

  // Adds one micro-batch's share to the gradients and to loss(); the first of a step begins the loss
  // anew. When it returns on the CPU, the batch's memory is no longer used. Nothing here waits for
  // the device, and all of it may be captured in a CUDA graph once it was done plainly.
  void add(const task::Batch& batch, bool is_first = true);
  // Clips, updates at the optimizer's learning rate, and zeroes the gradients; returns the norm of
  // the gradient before clipping (on the device).
  at::Tensor finish();
  // As finish(), but a step whose gradient is not finite changes no parameter, and with `and_loss`
  // one whose loss is not either; the optimizer's skipped() says so.
  at::Tensor finish_if_finite(bool and_loss);
  // Who is told of the phases from now on; null: nobody. Must outlive its being set.
  void set_observer(StepObserver* maybe_observer) { maybe_observer_ = maybe_observer; }
  // Drops what add() has gathered since the last finish.
  void drop();

  // The mean loss of the step, F64 scalar on the device: of what was added since its first
  // micro-batch.
  const at::Tensor& loss() const { return loss_; }

 private:
  model::Model& model_;
  const task::Task& task_;
  Optimizer& optimizer_;
  LossScale* const maybe_scale_;
  const int64_t accumulate_;
  const std::optional<at::ScalarType> autocast_;
  StepObserver* maybe_observer_ = nullptr;
  at::Tensor loss_;
};

}  // namespace stoker::train
