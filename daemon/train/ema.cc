#include "daemon/train/ema.h"

#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace stoker::train {

std::optional<double> ema_decay(const config::TrainConfig& config, uint64_t step) {
  if (step % config.ema_every_steps != 0) return std::nullopt;
  const auto at = static_cast<double>(step);
  double limit = 1;
  if (config.ema_warmup == config::EmaWarmup::kNumUpdates) limit = (1 + at) / (10 + at);
  if (config.ema_warmup == config::EmaWarmup::kPower) limit = 1 - std::pow(at, -2.0 / 3);
  return std::min(*config.ema_decay, limit);
}

EmaWeights::EmaWeights(const model::Model& model, const config::TrainConfig& config)
    : config_(config), weight_(1 - *config.ema_decay) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model::named_tensors(model)) {
    tensors_.emplace_back(name, tensor.detach());
    if (!tensor.requires_grad()) continue;
    parameters_.push_back(tensor);
    averages_.push_back(tensor.detach().clone());
    tensors_.back().second = averages_.back();
    named_averages_.emplace_back(name, averages_.back());
  }
}

void EmaWeights::reset_to_parameters() {
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(averages_, parameters_);
}

void EmaWeights::set_step(uint64_t step) {
  const std::optional<double> decay = ema_decay(config_, step);
  weight_ = decay ? 1 - *decay : 0;
  if (device_weight_.defined()) device_weight_.fill_(weight_);
}

void EmaWeights::use_device_weight() {
  const bool is_constant = config_.ema_every_steps == 1 && !config_.ema_warmup;
  if (is_constant || averages_.empty()) return;
  device_weight_ = at::zeros({}, averages_.front().options().dtype(at::kFloat));
  device_weight_.fill_(weight_);
}

// A weight of 0 leaves an average as it is, unless the parameter is not finite.
void EmaWeights::average() const {
  if (!device_weight_.defined()) return at::_foreach_lerp_(averages_, parameters_, weight_);
  for (size_t i = 0; i < averages_.size(); ++i)
    averages_[i].lerp_(parameters_[i], device_weight_.to(averages_[i].scalar_type()));
}

void EmaWeights::update(const at::Tensor& maybe_skipped) {
  if (!device_weight_.defined() && weight_ == 0) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> before;
  if (maybe_skipped.defined())
    for (const at::Tensor& average : averages_) before.push_back(average.clone());
  average();
  if (!maybe_skipped.defined()) return;
  // Only the device knows whether the step was skipped.
  const at::Tensor is_skipped = maybe_skipped.to(at::kBool);
  for (size_t i = 0; i < averages_.size(); ++i)
    averages_[i].copy_(at::where(is_skipped, before[i], averages_[i]));
}

}  // namespace stoker::train
