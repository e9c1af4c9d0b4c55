#include "daemon/train/update_rules.h"

#include <cmath>
#include <variant>

#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

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

void subtract_times_lr(const Group& group, const Tensors& updates) {
  at::_foreach_sub_(group.parameters, times_lr(group, updates));
}

// Returns the gradients plus weight decay.
Tensors decayed_gradients(const Group& group) {
  if (group.weight_decay == 0) return group.gradients;
  return at::_foreach_add(group.gradients, group.parameters, group.weight_decay);
}

// Shrinks the parameters by the learning rate times the weight decay.
void decay_parameters(const Group& group) {
  if (group.weight_decay == 0) return;
  if (group.device_lr.defined())
    at::_foreach_mul_(group.parameters, 1 - group.device_lr * group.weight_decay);
  else
    at::_foreach_mul_(group.parameters, 1 - group.lr * group.weight_decay);
}

Tensors decayed(const Group& group, bool is_decoupled) {
  if (!is_decoupled) return decayed_gradients(group);
  decay_parameters(group);
  return group.gradients;
}

// √squares + eps
Tensors roots(const Tensors& squares, double eps) {
  Tensors roots = at::_foreach_sqrt(squares);
  at::_foreach_add_(roots, eps);
  return roots;
}

// means ← decay * means + (1 - decay) * tensors²
void average_squares(const Tensors& means, double decay, const Tensors& tensors) {
  at::_foreach_mul_(means, decay);
  at::_foreach_addcmul_(means, tensors, tensors, 1 - decay);
}

// The steps of the parameters with this one, F64 [parameters].
at::Tensor next_steps(Group& group) {
  at::_foreach_add_(group.steps, 1);
  return at::stack(group.steps).to(at::kDouble);
}

// 1 - beta^step
at::Tensor bias_correction(double beta, const at::Tensor& steps) {
  return 1 - at::pow(beta, steps);
}

// The scalars of a vector, for an operation with as many tensors.
Tensors spread(const at::Tensor& vector) { return vector.unbind(); }

void update(const config::RmspropConfig& config, Group& group) {
  at::_foreach_add_(group.steps, 1);
  const Tensors gradients = decayed_gradients(group);
  average_squares(group.square_avgs, config.alpha, gradients);
  const Tensors divisors = roots(group.square_avgs, config.eps);
  if (group.momentum_buffers.empty())
    return subtract_times_lr(group, at::_foreach_div(gradients, divisors));
  at::_foreach_mul_(group.momentum_buffers, config.momentum);
  at::_foreach_addcdiv_(group.momentum_buffers, gradients, divisors);
  subtract_times_lr(group, group.momentum_buffers);
}

void update(const config::AdagradConfig& config, Group& group) {
  at::_foreach_add_(group.steps, 1);
  const Tensors gradients = decayed_gradients(group);
  at::_foreach_addcmul_(group.sums, gradients, gradients, 1);
  subtract_times_lr(group, at::_foreach_div(gradients, roots(group.sums, config.eps)));
}

void update(const config::LionConfig& config, Group& group) {
  const double beta1 = config.betas.at(0), beta2 = config.betas.at(1);
  Tensors updates = at::_foreach_mul(group.exp_avgs, beta1);
  at::_foreach_add_(updates, group.gradients, 1 - beta1);
  at::_foreach_sign_(updates);
  if (group.weight_decay > 0) at::_foreach_add_(updates, group.parameters, group.weight_decay);
  subtract_times_lr(group, updates);
  at::_foreach_mul_(group.exp_avgs, beta2);
  at::_foreach_add_(group.exp_avgs, group.gradients, 1 - beta2);
}

// The means of nadam, radam and lamb.
void average(const std::vector<double>& betas, const Group& group, const Tensors& gradients) {
  at::_foreach_lerp_(group.exp_avgs, gradients, 1 - betas.at(0));
  average_squares(group.exp_avg_sqs, betas.at(1), gradients);
}

// Dozat, 2016.
void update(const config::NadamConfig& config, Group& group) {
  const at::Tensor steps = next_steps(group);
  const Tensors gradients = decayed(group, config.decoupled_weight_decay);
  average(config.betas, group, gradients);
  const auto momentum_at = [&config](const at::Tensor& step) {
    constexpr double kBase = 0.96;
    return config.betas.at(0) * (1 - 0.5 * at::pow(kBase, step * config.momentum_decay));
  };
  const at::Tensor momentum = momentum_at(steps), next = momentum_at(steps + 1);
  at::_foreach_mul_(group.mu_products, spread(momentum.to(at::kFloat)));
  const at::Tensor product = at::stack(group.mu_products).to(at::kDouble);
  Tensors updates = at::_foreach_mul(gradients, spread((1 - momentum) / (1 - product)));
  at::_foreach_add_(updates, at::_foreach_mul(group.exp_avgs, spread(next / (1 - product * next))));
  const Tensors unbiased =
      at::_foreach_div(group.exp_avg_sqs, spread(bias_correction(config.betas.at(1), steps)));
  at::_foreach_div_(updates, roots(unbiased, config.eps));
  subtract_times_lr(group, updates);
}

// Liu et al., 2020: without the adaptive rate as long as its variance is not tractable.
void update(const config::RadamConfig& config, Group& group) {
  const at::Tensor steps = next_steps(group);
  const Tensors gradients = decayed(group, config.decoupled_weight_decay);
  average(config.betas, group, gradients);
  const double beta2 = config.betas.at(1);
  const at::Tensor unbias1 = bias_correction(config.betas.at(0), steps).reciprocal();
  const at::Tensor bias2 = bias_correction(beta2, steps);
  const double limit = 2 / (1 - beta2) - 1;
  const at::Tensor length = limit - 2 * steps * at::pow(beta2, steps) / bias2;
  const at::Tensor is_adaptive = length > 5;
  const at::Tensor rectification =
      ((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)).sqrt();
  const at::Tensor zeros = at::zeros_like(steps);
  const at::Tensor adaptive = at::where(is_adaptive, rectification * bias2.sqrt() * unbias1, zeros);
  const at::Tensor plain = at::where(is_adaptive, zeros, unbias1);
  // adaptive * exp_avg / (√exp_avg_sq + eps) + plain * exp_avg, of which one is 0
  Tensors updates = at::_foreach_div(group.exp_avgs, roots(group.exp_avg_sqs, config.eps));
  at::_foreach_mul_(updates, spread(adaptive));
  at::_foreach_add_(updates, at::_foreach_mul(group.exp_avgs, spread(plain)));
  subtract_times_lr(group, updates);
}

// Kingma and Ba, 2015, section 7.1.
void update(const config::AdamaxConfig& config, Group& group) {
  const at::Tensor steps = next_steps(group);
  const Tensors gradients = decayed_gradients(group);
  at::_foreach_lerp_(group.exp_avgs, gradients, 1 - config.betas.at(0));
  Tensors norms = at::_foreach_abs(gradients);
  at::_foreach_add_(norms, config.eps);
  at::_foreach_mul_(group.exp_infs, config.betas.at(1));
  at::_foreach_maximum_(group.exp_infs, norms);
  Tensors updates = at::_foreach_div(group.exp_avgs, group.exp_infs);
  at::_foreach_div_(updates, spread(bias_correction(config.betas.at(0), steps)));
  subtract_times_lr(group, updates);
}

// Zeiler, 2012.
void update(const config::AdadeltaConfig& config, Group& group) {
  at::_foreach_add_(group.steps, 1);
  const Tensors gradients = decayed_gradients(group);
  average_squares(group.square_avgs, config.rho, gradients);
  const auto root_of = [&config](const Tensors& squares) {
    Tensors sums = at::_foreach_add(squares, config.eps);
    at::_foreach_sqrt_(sums);
    return sums;
  };
  Tensors updates = root_of(group.acc_deltas);
  at::_foreach_div_(updates, root_of(group.square_avgs));
  at::_foreach_mul_(updates, gradients);
  average_squares(group.acc_deltas, config.rho, updates);
  subtract_times_lr(group, updates);
}

// The mean of the squares along a dimension.
at::Tensor mean_square(const at::Tensor& tensor, int64_t dim) {
  return at::linalg_vector_norm(tensor, 2, dim, /*keepdim=*/true)
      .square_()
      .div_(static_cast<double>(tensor.size(dim)));
}

at::Tensor root_mean_square(const at::Tensor& tensor) {
  return at::linalg_vector_norm(tensor) / std::sqrt(static_cast<double>(tensor.numel()));
}

// Shazeer and Stern, 2018: the mean squares of a matrix are the product of those of its rows and columns.
at::Tensor adafactor_variance(const config::AdafactorConfig& config, const Group& group, size_t i,
                              const at::Tensor& weight) {
  const at::Tensor& gradient = group.gradients[i];
  const auto average = [&weight](at::Tensor mean, const at::Tensor& now) {
    mean.lerp_(now, weight);
  };
  if (gradient.dim() < 2) {
    average(group.variances[i], gradient * gradient);
    return group.variances[i].clone();
  }
  average(group.row_vars[i], mean_square(gradient, -1));
  average(group.col_vars[i], mean_square(gradient, -2));
  const at::Tensor mean = group.row_vars[i].mean(-2, /*keepdim=*/true);
  return group.row_vars[i].matmul(group.col_vars[i]).div_(mean.clamp_min(config.eps.at(0)));
}

void update(const config::AdafactorConfig& config, Group& group) {
  const at::Tensor steps = next_steps(group);
  const at::Tensor lr = group.device_lr.defined() ? group.device_lr.to(at::kDouble)
                                                  : at::ones_like(steps[0]) * group.lr;
  const Tensors weights = spread(steps.pow(config.beta2_decay).to(at::kFloat));
  const Tensors rates = spread(at::minimum(lr, steps.rsqrt()));
  const Tensors scales = [&] {
    Tensors all;  // before the decay
    for (const at::Tensor& parameter : group.parameters)
      all.push_back(root_mean_square(parameter).clamp_min(config.eps.at(1)));
    return all;
  }();
  decay_parameters(group);
  const double least = config.eps.at(0) * config.eps.at(0);
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    at::Tensor update = adafactor_variance(config, group, i, weights[i]);
    update = update.clamp_min_(least).rsqrt_().mul_(group.gradients[i]);
    const at::Tensor excess = (root_mean_square(update) / config.d).clamp_min(1);
    at::Tensor parameter = group.parameters[i];
    parameter.sub_(update.mul_(scales[i] * rates[i] / excess));
  }
}

// `ratios`, or 1 where one of the norms is 0; of each parameter.
at::Tensor trust_ratios(const at::Tensor& weights, const at::Tensor& updates,
                        const at::Tensor& ratios) {
  return at::where((weights > 0).logical_and(updates > 0), ratios, at::ones_like(ratios));
}

void update(const config::LambConfig& config, Group& group) {
  const at::Tensor steps = next_steps(group);
  average(config.betas, group, group.gradients);
  const at::Tensor bias2 = bias_correction(config.betas.at(1), steps).sqrt();
  Tensors denominators = at::_foreach_sqrt(group.exp_avg_sqs);
  at::_foreach_div_(denominators, spread(bias2));
  at::_foreach_add_(denominators, config.eps);
  Tensors updates =
      at::_foreach_div(group.exp_avgs, spread(bias_correction(config.betas.at(0), steps)));
  at::_foreach_div_(updates, denominators);
  if (group.weight_decay != 0) at::_foreach_add_(updates, group.parameters, group.weight_decay);
  if (group.weight_decay != 0 || config.always_adapt) {
    const at::Tensor weights = at::stack(at::_foreach_norm(group.parameters));
    const at::Tensor norms = at::stack(at::_foreach_norm(updates));
    at::Tensor ratios = trust_ratios(weights, norms, weights / norms);
    if (config.trust_clip) ratios = ratios.clamp_max(1);
    at::_foreach_mul_(updates, spread(ratios));
  }
  subtract_times_lr(group, updates);
}

void update(const config::LarsConfig& config, Group& group) {
  Tensors updates = decayed_gradients(group);
  if (group.weight_decay != 0 || config.always_adapt) {
    const at::Tensor weights = at::stack(at::_foreach_norm(group.parameters));
    const at::Tensor norms = at::stack(at::_foreach_norm(group.gradients));
    at::Tensor ratios = trust_ratios(
        weights, norms,
        config.trust_coeff * weights / (norms + weights * group.weight_decay + config.eps));
    if (config.trust_clip) {
      const at::Tensor lr =
          group.device_lr.defined() ? group.device_lr : at::ones_like(ratios) * group.lr;
      ratios = (ratios / lr).clamp_max(1).to(at::kFloat);
    }
    updates = at::_foreach_mul(updates, spread(ratios));
  }
  if (!group.momentum_buffers.empty()) {
    at::_foreach_mul_(group.momentum_buffers, config.momentum);
    at::_foreach_add_(group.momentum_buffers, updates);
    updates = config.nesterov ? at::_foreach_add(updates, group.momentum_buffers, config.momentum)
                              : group.momentum_buffers;
  }
  subtract_times_lr(group, updates);
}

// Defazio et al., 2024: the parameters are between z, which is updated, and its average, whose weights are the squares of
// the learning rate. c is the weight of this step in the average:
//   y ← y + c (z - y) + lr (beta1 (1 - c) - 1) update;  z - y ← (1 - c) (z - y - lr beta1 update)
void update(const config::ScheduleFreeAdamWConfig& config, Group& group) {
  const at::Tensor steps = next_steps(group);
  const double beta1 = config.betas.at(0), beta2 = config.betas.at(1);
  const at::Tensor lr =
      at::ones_like(steps) * (group.device_lr.defined() ? group.device_lr.to(at::kDouble)
                                                        : at::ones_like(steps[0]) * group.lr);
  at::_foreach_maximum_(group.lr_maxs, spread(lr.to(at::kFloat)));
  const at::Tensor weights = at::stack(group.lr_maxs).to(at::kDouble).square();
  at::_foreach_add_(group.weight_sums, spread(weights));
  const at::Tensor sums = at::stack(group.weight_sums);
  const at::Tensor part = at::where(sums > 0, weights / sums, at::zeros_like(sums));
  average_squares(group.exp_avg_sqs, beta2, group.gradients);
  const Tensors unbiased =
      at::_foreach_div(group.exp_avg_sqs, spread(bias_correction(beta2, steps)));
  Tensors updates = at::_foreach_div(group.gradients, roots(unbiased, config.eps));
  if (group.weight_decay != 0) at::_foreach_add_(updates, group.parameters, group.weight_decay);
  at::_foreach_add_(group.parameters, at::_foreach_mul(group.z_offsets, spread(part)));
  at::_foreach_add_(group.parameters,
                    at::_foreach_mul(updates, spread(lr * (beta1 * (1 - part) - 1))));
  at::_foreach_sub_(group.z_offsets, at::_foreach_mul(updates, spread(lr * beta1)));
  at::_foreach_mul_(group.z_offsets, spread(1 - part));
}

// Those that Optimizer updates with LibTorch's kernels.
template <typename Method>
concept HasFusedKernel = std::is_same_v<Method, config::SgdConfig> ||
    std::is_same_v<Method, config::AdamConfig> || std::is_same_v<Method, config::AdamWConfig>;

void update(const HasFusedKernel auto& /*config*/, Group& /*group*/) {}
void update(const config::MuonConfig& config, Group& group) { muon_step(config, group); }

}  // namespace

void apply_update_rule(const config::OptimizerConfig& config, Group& group) {
  std::visit([&group](const auto& method) { update(method, group); }, config.method);
}

}  // namespace stoker::train
