// Optimizer: sgd, momentum, adam and adamw through LibTorch's fused kernels, with clipping of the
// gradient's global norm; the same arithmetic as PyTorch's optimizers with fused=True.
//
// Weight decay applies to every parameter, as PyTorch does by default: decoupled from the gradient
// in adamw, added to the gradient in the others.
//
// Threads:  the trainer's thread only.
// Blocking: step() never waits for the device.
// Owner:    keeps the parameters' tensors; their gradients are made here and kept for good, so that
//           their addresses never change. Nobody may drop or replace them.
// Errors:   LibTorch's exceptions pass through step() and zero_grad().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/base/status.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/config/config.h"
#include "shared/model/model.h"

namespace stoker::train {

using model::NamedTensors;

class Optimizer {
 public:
  // `parameters` are those to train, by name, on the device that they stay on. kInvalidArgument:
  // there are none. kOutOfMemory.
  static Result<std::unique_ptr<Optimizer>> create(const config::OptimizerConfig& config,
                                                   const NamedTensors& parameters);

  // Clips, then updates the parameters by what is in their gradients, which stay as they are but
  // for the clipping. Returns the norm before clipping, an F32 scalar on the device.
  at::Tensor step(double lr);
  // As step(), but changes nothing where the norm or `loss` (a scalar on the device) is not finite;
  // skipped() says so afterwards, without anybody waiting for the device.
  at::Tensor step_if_finite(double lr, const at::Tensor& loss);
  const at::Tensor& skipped() const { return found_inf_; }  // F32 scalar on the device: 1 or 0

  // step() in two parts, so that the second can be captured in a CUDA graph: everything that
  // update() reads is on the device.
  void set_lr(double lr);
  at::Tensor update();

  void zero_grad();

  // What a checkpoint must hold: "exp_avg.<parameter>", "exp_avg_sq.<parameter>" and
  // "step.<parameter>" (adam, adamw), "momentum_buffer.<parameter>" (momentum), nothing for sgd.
  // The tensors themselves, not copies; names and shapes never change.
  const NamedTensors& state() const { return state_; }
  // Strict: exactly the tensors of state(); as model::load_tensors().
  Status load(const checkpoint::SafetensorsFile& file);

 private:
  explicit Optimizer(const config::OptimizerConfig& config) : config_(config) {}
  void add(const std::string& name, const at::Tensor& parameter);
  at::Tensor clip();
  void apply();

  const config::OptimizerConfig config_;
  std::vector<at::Tensor> parameters_, gradients_;
  // As many as parameters_ where the kind has them, else empty.
  std::vector<at::Tensor> exp_avgs_, exp_avg_sqs_, steps_, momentum_buffers_;
  NamedTensors state_;
  double lr_ = 0;
  at::Tensor device_lr_;  // F32 scalar; undefined on the CPU, where kernels take the double
  at::Tensor found_inf_;  // F32 scalar: 1 keeps the kernels from changing anything; else undefined
};

}  // namespace stoker::train
