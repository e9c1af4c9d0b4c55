#include "daemon/train/optimizer_steps.h"

#include <variant>
#include <vector>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/where.h>

#include "daemon/train/muon.h"

namespace stoker::train {
namespace {

using Group = Optimizer::Group;
using Tensors = std::vector<at::Tensor>;

// `tensors` multiplied by the group's learning rate, which on a device is in device memory.
Tensors times_lr(const Group& group, const Tensors& tensors) {
  return group.device_lr.defined() ? at::_foreach_mul(tensors, group.device_lr)
                                   : at::_foreach_mul(tensors, group.lr);
}

// Returns the gradients plus weight decay; does not change the gradients.
Tensors decayed_gradients(const Group& group) {
  if (group.weight_decay == 0) return group.gradients;
  return at::_foreach_add(group.gradients, group.parameters, group.weight_decay);
}

// √squares + eps
Tensors roots(const Tensors& squares, double eps) {
  Tensors roots = at::_foreach_sqrt(squares);
  at::_foreach_add_(roots, eps);
  return roots;
}

void rmsprop(const config::RmspropConfig& config, Group& group) {
  at::_foreach_add_(group.steps, 1);
  const Tensors gradients = decayed_gradients(group);
  at::_foreach_mul_(group.square_avgs, config.alpha);
  at::_foreach_addcmul_(group.square_avgs, gradients, gradients, 1 - config.alpha);
  const Tensors divisors = roots(group.square_avgs, config.eps);
  if (group.momentum_buffers.empty()) {
    at::_foreach_sub_(group.parameters, times_lr(group, at::_foreach_div(gradients, divisors)));
    return;
  }
  at::_foreach_mul_(group.momentum_buffers, config.momentum);
  at::_foreach_addcdiv_(group.momentum_buffers, gradients, divisors);
  at::_foreach_sub_(group.parameters, times_lr(group, group.momentum_buffers));
}

void adagrad(const config::AdagradConfig& config, Group& group) {
  at::_foreach_add_(group.steps, 1);
  const Tensors gradients = decayed_gradients(group);
  at::_foreach_addcmul_(group.sums, gradients, gradients, 1);
  const Tensors updates = at::_foreach_div(gradients, roots(group.sums, config.eps));
  at::_foreach_sub_(group.parameters, times_lr(group, updates));
}

void lion(const config::LionConfig& config, Group& group) {
  const double beta1 = config.betas.at(0), beta2 = config.betas.at(1);
  Tensors updates = at::_foreach_mul(group.exp_avgs, beta1);
  at::_foreach_add_(updates, group.gradients, 1 - beta1);
  at::_foreach_sign_(updates);
  if (group.weight_decay > 0) at::_foreach_add_(updates, group.parameters, group.weight_decay);
  at::_foreach_sub_(group.parameters, times_lr(group, updates));
  at::_foreach_mul_(group.exp_avgs, beta2);
  at::_foreach_add_(group.exp_avgs, group.gradients, 1 - beta2);
}

void update(const config::OptimizerConfig& config, Group& group) {
  const auto& method = config.method;
  if (const auto* const of = std::get_if<config::RmspropConfig>(&method)) rmsprop(*of, group);
  if (const auto* const of = std::get_if<config::AdagradConfig>(&method)) adagrad(*of, group);
  if (const auto* const of = std::get_if<config::LionConfig>(&method)) lion(*of, group);
  if (const auto* const of = std::get_if<config::MuonConfig>(&method)) muon_step(*of, group);
}

// All tensors that an update changes.
Tensors parameters_and_state(const Group& group) {
  Tensors all = group.parameters;
  for (const Tensors* list :
       {&group.exp_avgs, &group.square_avgs, &group.sums, &group.momentum_buffers, &group.steps})
    all.insert(all.end(), list->begin(), list->end());
  return all;
}

}  // namespace

void apply_update(const config::OptimizerConfig& config, Group& group,
                  const std::optional<at::Tensor>& found_inf) {
  if (!found_inf) {
    update(config, group);
    return;
  }
  // Only the device knows whether the step is skipped. The update therefore always runs, and a
  // skipped step is undone by restoring the previous values.
  const Tensors tensors = parameters_and_state(group);
  Tensors before;
  for (const at::Tensor& tensor : tensors) before.push_back(tensor.clone());
  update(config, group);
  const at::Tensor is_skipped = found_inf->to(at::kBool);
  for (size_t i = 0; i < tensors.size(); ++i)
    tensors[i].copy_(at::where(is_skipped, before[i], tensors[i]));
}

}  // namespace stoker::train
