#include "daemon/train/ema.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/where.h>

namespace stoker::train {

EmaWeights::EmaWeights(const model::Model& model, double decay) : decay_(decay) {
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

void EmaWeights::update(const at::Tensor& maybe_skipped) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> before;
  if (maybe_skipped.defined())
    for (const at::Tensor& average : averages_) before.push_back(average.clone());
  at::_foreach_lerp_(averages_, parameters_, 1 - decay_);
  if (!maybe_skipped.defined()) return;
  // Only the device knows whether the step was skipped.
  const at::Tensor is_skipped = maybe_skipped.to(at::kBool);
  for (size_t i = 0; i < averages_.size(); ++i)
    averages_[i].copy_(at::where(is_skipped, before[i], averages_[i]));
}

}  // namespace stoker::train
