// Optimizer: sgd, adam and adamw through LibTorch's fused kernels, others by optimizer_steps.h and
// muon.h, with clipping of the gradient's elements and of its global norm; the same arithmetic as
// PyTorch's optimizers.
//
// Weight decay applies to every parameter, as PyTorch does by default: decoupled from the gradient
// in adamw, lion and muon, added to the gradient in the others. config.param_groups gives parameters
// a learning rate and a decay of their own, as PyTorch's parameter groups do; the norm is clipped
// over all together.
//
// Threads:  the trainer's thread only.
// Blocking: step() never waits for the device.
// Owner:    keeps the parameters' tensors; their gradients are made here and kept for good, so that
//           their addresses never change. Nobody may drop or replace them.
// Errors:   LibTorch's exceptions pass through step() and zero_grad().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/base/status.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/config/training_config.h"
#include "shared/model/model.h"

namespace stoker::train {

using model::NamedTensors;

class Optimizer {
 public:
  // `parameters` are those to train, by name, on the device that they stay on. Of `train` are read
  // max_grad_norm and max_grad_value. kInvalidArgument: there are no parameters, or a group would
  // have none. kOutOfMemory.
  static Result<std::unique_ptr<Optimizer>> create(const config::OptimizerConfig& config,
                                                   const config::TrainConfig& train,
                                                   const NamedTensors& parameters);

  // Clips, then updates the parameters by what is in their gradients, which stay as they are but
  // for the clipping. Returns the norm before clipping, an F32 scalar on the device.
  at::Tensor step(double lr);
  // As step(), but changes nothing where the norm or `loss` (a scalar on the device) is not finite;
  // skipped() says so afterwards, without anybody waiting for the device.
  at::Tensor step_if_finite(double lr, const at::Tensor& loss);
  const at::Tensor& skipped() const { return found_inf_; }  // F32 scalar on the device: 1 or 0

  // step() in two parts, so that the second can be captured in a CUDA graph: everything that the
  // updates read is on the device. update_unless() changes nothing where `found_inf`, an F32 scalar
  // on the device, is 1.
  void set_lr(double lr);
  at::Tensor update();
  at::Tensor update_if_finite(const at::Tensor& loss);
  at::Tensor update_unless(const at::Tensor& found_inf);

  void zero_grad();
  const std::vector<at::Tensor>& gradients() const { return gradients_; }  // of all groups

  // What a checkpoint must hold: "exp_avg.<parameter>", "exp_avg_sq.<parameter>" and
  // "step.<parameter>" (adam, adamw), "momentum_buffer.<parameter>" (sgd with momentum, else
  // nothing); of the others as PyTorch names it.
  // The tensors themselves, not copies; names and shapes never change.
  const NamedTensors& state() const { return state_; }
  // Which parameters are updated together: those of no group, then config.param_groups in their
  // order; with muon those that it updates, then in the same order those that adamw does.
  struct Group {
    config::OptimizerName kind = {};  // what updates them
    std::string match;                // empty: of no group
    double lr_scale = 1;
    double weight_decay = 0;
    std::vector<at::Tensor> parameters, gradients;
    // As many as parameters where the kind of optimizer has them, else empty.
    std::vector<at::Tensor> exp_avgs, exp_avg_sqs, square_avgs, sums, steps, momentum_buffers;
    double lr = 0;
    at::Tensor device_lr;  // F32 scalar; undefined on the CPU, where kernels take the double
  };
  const std::vector<Group>& groups() const { return groups_; }

  // Strict: exactly the tensors of state(); as model::load_tensors().
  Status load(const checkpoint::SafetensorsFile& file);

 private:
  Optimizer(const config::OptimizerConfig& config, const config::TrainConfig& train)
      : config_(config), max_norm_(train.max_grad_norm), max_value_(train.max_grad_value) {}
  // A row for what is of no group and one for each group; with muon as many again, for what it leaves
  // to adamw. Returns how many without those.
  size_t add_rows();
  Status make_groups(const NamedTensors& parameters);
  Status check_matches(size_t rows, const NamedTensors& parameters) const;
  void add(Group& group, const std::string& name, const at::Tensor& parameter);
  at::Tensor gradient_norm() const;
  at::Tensor clip();
  void apply();
  void apply_sgd(Group& group, const std::optional<at::Tensor>& found_inf);
  void apply_adam(Group& group, const std::optional<at::Tensor>& found_inf);

  const config::OptimizerConfig config_;
  const std::optional<double> max_norm_, max_value_;
  std::vector<Group> groups_;          // none is empty
  std::vector<at::Tensor> gradients_;  // of all groups
  NamedTensors state_;
  at::Tensor found_inf_;  // F32 scalar: 1 keeps the kernels from changing anything; else undefined
};

}  // namespace stoker::train
