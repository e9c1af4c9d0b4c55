#include "daemon/train/optimizer.h"

#include <cassert>
#include <new>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "shared/model/load_weights.h"
#include "shared/model/torch_status.h"

namespace stoker::train {

using config::OptimizerKind;

Result<std::unique_ptr<Optimizer>> Optimizer::create(const config::OptimizerConfig& config,
                                                     const NamedTensors& parameters) {
  if (parameters.empty())
    return Status(Code::kInvalidArgument, "there is no parameter to train (see model.freeze)");
  try {
    const at::NoGradGuard no_grad;
    std::unique_ptr<Optimizer> optimizer(new Optimizer(config));
    for (const auto& [name, parameter] : parameters) optimizer->add(name, parameter);
    const c10::Device device = parameters.front().second.device();
    if (!device.is_cpu())
      optimizer->device_lr_ = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(device));
    return optimizer;
  } catch (const c10::Error& error) {
    return model::status_of(error, "make the optimizer");
  } catch (const std::bad_alloc&) {
    return Status(Code::kOutOfMemory, "make the optimizer: not enough host memory");
  }
}

void Optimizer::add(const std::string& name, const at::Tensor& parameter) {
  assert(parameter.is_leaf() && parameter.requires_grad());
  parameters_.push_back(parameter);
  gradients_.push_back(at::zeros_like(parameter));
  parameter.mutable_grad() = gradients_.back();
  const auto keep = [&](std::vector<at::Tensor>& list, const char* what, at::Tensor tensor) {
    state_.emplace_back(what + name, tensor);
    list.push_back(std::move(tensor));
  };
  switch (config_.kind) {
    case OptimizerKind::kSgd:
      break;
    case OptimizerKind::kMomentum:
      keep(momentum_buffers_, "momentum_buffer.", at::zeros_like(parameter));
      break;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      keep(exp_avgs_, "exp_avg.", at::zeros_like(parameter));
      keep(exp_avg_sqs_, "exp_avg_sq.", at::zeros_like(parameter));
      keep(steps_, "step.", at::zeros({}, parameter.options().dtype(at::kFloat)));
      break;
  }
}

at::Tensor Optimizer::step(double lr) {
  set_lr(lr);
  return update();
}

void Optimizer::set_lr(double lr) {
  lr_ = lr;
  if (device_lr_.defined()) device_lr_.fill_(lr);
}

at::Tensor Optimizer::update() {
  const at::NoGradGuard no_grad;
  found_inf_ = at::Tensor();
  const at::Tensor norm = clip();
  apply();
  return norm;
}

at::Tensor Optimizer::step_if_finite(double lr, const at::Tensor& loss) {
  const at::NoGradGuard no_grad;
  set_lr(lr);
  const at::Tensor norm = clip();
  found_inf_ = (norm + loss).isfinite().logical_not().to(at::kFloat);
  apply();
  return norm;
}

at::Tensor Optimizer::clip() {
  const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients_)));
  if (config_.clip_norm > 0) {
    // As torch.nn.utils.clip_grad_norm_; a factor of 1 is multiplied too, so that the device is
    // never asked which it was.
    const at::Tensor factor = (config_.clip_norm / (norm + 1e-6)).clamp_max_(1.0);
    at::_foreach_mul_(gradients_, factor);
  }
  return norm;
}

void Optimizer::apply() {
  const auto with_lr = [&](auto&& kernel) {
    if (device_lr_.defined())
      kernel(device_lr_);
    else
      kernel(lr_);
  };
  const std::optional<at::Tensor> found_inf =
      found_inf_.defined() ? std::optional(found_inf_) : std::nullopt;
  switch (config_.kind) {
    case OptimizerKind::kSgd:
    case OptimizerKind::kMomentum:
      // A zero buffer gives the first step what PyTorch's copy of the gradient gives it.
      with_lr([&](const auto& lr) {
        at::_fused_sgd_(parameters_, gradients_, momentum_buffers_, config_.weight_decay,
                        momentum_buffers_.empty() ? 0.0 : config_.momentum, lr,
                        /*dampening=*/0.0, config_.nesterov && !momentum_buffers_.empty(),
                        /*maximize=*/false, /*is_first_step=*/false, /*grad_scale=*/{}, found_inf);
      });
      break;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      at::_foreach_add_(steps_, 1);
      if (found_inf) at::_foreach_sub_(steps_, std::vector<at::Tensor>(steps_.size(), *found_inf));
      with_lr([&](const auto& lr) {
        const auto kernel = [&](auto&& fused) {
          fused(parameters_, gradients_, exp_avgs_, exp_avg_sqs_,
                /*max_exp_avg_sqs=*/at::TensorList{}, steps_, lr, config_.betas.at(0),
                config_.betas.at(1), config_.weight_decay, config_.eps, /*amsgrad=*/false,
                /*maximize=*/false, /*grad_scale=*/std::optional<at::Tensor>(), found_inf);
        };
        if (config_.kind == OptimizerKind::kAdamW)
          kernel([](auto&&... each) { at::_fused_adamw_(each...); });
        else
          kernel([](auto&&... each) { at::_fused_adam_(each...); });
      });
      break;
  }
}

void Optimizer::zero_grad() {
  const at::NoGradGuard no_grad;
  at::_foreach_zero_(gradients_);
}

Status Optimizer::load(const checkpoint::SafetensorsFile& file) {
  return model::load_tensors(state_, file, "the optimizer");
}

}  // namespace stoker::train
