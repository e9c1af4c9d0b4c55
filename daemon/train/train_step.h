// TrainStep: from the micro-batches of one step to an update of the parameters.
//
// Threads: the trainer's thread only.
// Errors:  LibTorch's exceptions pass through.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "daemon/train/optimizer.h"
#include "daemon/train/step_observer.h"
#include "shared/ring/batch_layout.h"
#include "shared/task/task.h"

namespace stoker::train {

// The tensors of a ring slot: views of its memory where the device is the CPU (valid until the slot
// is released), copies on the device otherwise (complete on return).
task::Batch batch_tensors(const ring::BatchLayout& layout, std::span<const std::byte> slot,
                          c10::Device device);

class TrainStep {
 public:
  // All must outlive this object. `accumulate` micro-batches make a step; `bf16` runs the forward
  // pass under autocast.
  TrainStep(model::Model& model, const task::Task& task, Optimizer& optimizer, int64_t accumulate,
            bool bf16);

  // Adds one micro-batch's share to the gradients and to loss(). When it returns on the CPU, the
  // batch's memory is no longer used. Nothing here waits for the device.
  void add(const task::Batch& batch);
  // Clips, updates, and zeroes the gradients; returns the norm of the gradient before clipping (on
  // the device).
  at::Tensor finish(double lr);
  // As finish(), but a step whose loss or gradient is not finite changes no parameter; the
  // optimizer's skipped() says so.
  at::Tensor finish_if_finite(double lr);
  // Who is told of the phases from now on; null: nobody. Must outlive its being set.
  void set_observer(StepObserver* maybe_observer) { maybe_observer_ = maybe_observer; }
  // Drops what add() has gathered since the last finish.
  void drop();

  // The mean loss of the step, F64 scalar on the device: of what was added since the last finish,
  // and after it of the step that was finished.
  const at::Tensor& loss() const { return loss_; }

 private:
  model::Model& model_;
  const task::Task& task_;
  Optimizer& optimizer_;
  int64_t accumulate_;
  bool bf16_;
  StepObserver* maybe_observer_ = nullptr;
  at::Tensor loss_;
  bool finished_ = true;  // the next add() begins a step
};

}  // namespace stoker::train
