#include "daemon/train/ema.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>

namespace stoker::train {

EmaWeights::EmaWeights(const model::Model& model, double decay) : decay_(decay) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model::named_tensors(model)) {
    tensors_.emplace_back(name, tensor.detach());
    if (!tensor.requires_grad()) continue;
    parameters_.push_back(tensor);
    averages_.push_back(tensor.detach().clone());
    tensors_.back().second = averages_.back();
  }
}

void EmaWeights::reset_to_parameters() {
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(averages_, parameters_);
}

void EmaWeights::update() {
  const at::NoGradGuard no_grad;
  at::_foreach_lerp_(averages_, parameters_, 1 - decay_);
}

}  // namespace stoker::train
