// LossScale: dynamic loss scaling for train.precision fp16, equivalent to torch.amp.GradScaler. The
// loss is multiplied by a factor so that small gradients do not underflow in fp16.
//
// The factor starts at 65536. A step whose gradients overflow changes no parameter and halves the
// factor; 2000 consecutive steps without an overflow double it. All state is on the device, so
// nothing waits for it.
//
// Threads: the trainer thread only.
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
  // Divides the gradients by the factor. Returns 1 if any of them is not finite, else 0, as an F32
  // scalar on the device.
  const at::Tensor& unscale(const std::vector<at::Tensor>& gradients);
  // Adjusts the factor by the result of unscale(). Call after the step.
  void update();

  // F32 scalar on the device.
  const at::Tensor& factor() const { return factor_; }
  // The state for a checkpoint. The tensors are not copies.
  model::NamedTensors state() const;

 private:
  at::Tensor factor_;
  at::Tensor good_steps_;  // I32 scalar: consecutive steps since the factor last changed
  at::Tensor found_inf_;   // F32 scalar
};

}  // namespace stoker::train
