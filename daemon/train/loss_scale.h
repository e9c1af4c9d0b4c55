// LossScale: for train.precision fp16, what the loss is multiplied by so that small gradients are
// not 0 in fp16, and how that factor follows what the gradients bear; as torch.amp.GradScaler.
//
// It begins at 65536. A step whose gradients overflow changes no parameter and halves the factor;
// 2000 steps in a row without one double it. All of it is on the device, so nothing waits for it.
//
// Threads: the trainer's thread only.
// Errors:  LibTorch's exceptions pass through.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "shared/model/model.h"

namespace stoker::train {

class LossScale {
 public:
  explicit LossScale(c10::Device device);

  at::Tensor scaled(const at::Tensor& loss) const { return loss * factor_; }
  // Divides the gradients by the factor; returns whether one of them is not finite, as an F32 scalar
  // on the device, 1 or 0.
  const at::Tensor& unscale(const std::vector<at::Tensor>& gradients);
  // After the step: by what unscale() found.
  void update();

  // F32 scalar on the device.
  const at::Tensor& factor() const { return factor_; }
  // What a checkpoint must hold: the tensors themselves, not copies.
  model::NamedTensors state() const;

 private:
  at::Tensor factor_;
  at::Tensor good_steps_;  // I32 scalar: in a row, since the factor was last changed
  at::Tensor found_inf_;   // F32 scalar
};

}  // namespace stoker::train
