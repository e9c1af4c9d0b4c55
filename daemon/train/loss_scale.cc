#include "daemon/train/loss_scale.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace stoker::train {
namespace {

// The defaults of torch.amp.GradScaler.
constexpr double kFirst = 65536;
constexpr double kGrowth = 2.0;
constexpr double kBackoff = 0.5;
constexpr int64_t kGrowthSteps = 2000;

}  // namespace

LossScale::LossScale(c10::Device device)
    : factor_(at::full({}, kFirst, at::TensorOptions().dtype(at::kFloat).device(device))),
      good_steps_(at::zeros({}, at::TensorOptions().dtype(at::kInt).device(device))),
      found_inf_(at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(device))) {}

const at::Tensor& LossScale::unscale(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  found_inf_.zero_();
  // Computed in F64, as in GradScaler, so that the reciprocal of a large factor is not rounded
  // twice.
  const at::Tensor inverse = factor_.to(at::kDouble).reciprocal().to(at::kFloat);
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf_, inverse);
  return found_inf_;
}

void LossScale::update() {
  const at::NoGradGuard no_grad;
  at::_amp_update_scale_(factor_, good_steps_, found_inf_, kGrowth, kBackoff, kGrowthSteps);
}

model::NamedTensors LossScale::state() const {
  return {{"loss_scale.factor", factor_}, {"loss_scale.good_steps", good_steps_}};
}

}  // namespace stoker::train
