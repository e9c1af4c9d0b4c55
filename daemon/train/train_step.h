// TrainStep: from the micro-batches of one step to an update of the parameters.
//
// Threads: the trainer's thread only.
// Errors:  LibTorch's exceptions pass through.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "daemon/train/optimizer.h"
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

  // Adds one micro-batch's share to the gradients; its mean loss is added to `loss_sum` (F64 scalar
  // on the device), so that nothing here waits for the device. When it returns on the CPU, the
  // batch's memory is no longer used.
  void add(const task::Batch& batch, at::Tensor& loss_sum);
  // Clips, updates, and zeroes the gradients; returns the norm of the gradient before clipping (on
  // the device).
  at::Tensor finish(double lr);

 private:
  model::Model& model_;
  const task::Task& task_;
  Optimizer& optimizer_;
  int64_t accumulate_;
  bool bf16_;
};

}  // namespace stoker::train
