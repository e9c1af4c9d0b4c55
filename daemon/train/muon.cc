#include "daemon/train/muon.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/addmm.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>

namespace stoker::train {
namespace {

// The coefficients of Jordan et al., which PyTorch uses too: the steepest polynomial at 0 whose
// iteration still converges to values near 1.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kIterations = 5;
constexpr double kMinNorm = 1e-7;

// Runs in bf16, which is precise enough for a direction. Tall matrices are transposed, so that the
// Gram matrix has the size of the shorter side.
at::Tensor nearly_orthogonal(const at::Tensor& matrix) {
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = matrix.to(at::kBFloat16);
  if (is_tall) x = x.t();
  x = x.div(at::linalg_vector_norm(x).clamp_min(kMinNorm));
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor gram = x.matmul(x.t());
    const at::Tensor polynomial = at::addmm(gram, gram, gram, kB, kC);
    x = at::addmm(x, polynomial, x, kA, 1);
  }
  return is_tall ? x.t() : x;
}

// Gives the elements of an update the same magnitude as with adamw.
double scale_of(const at::Tensor& parameter) {
  const auto longer = static_cast<double>(std::max(parameter.size(0), parameter.size(1)));
  return 0.2 * std::sqrt(longer);
}

// On a device the learning rate is read from device memory, so that captured graphs use its current
// value.
void move(const Optimizer::Group& group, at::Tensor parameter, const at::Tensor& direction) {
  const double scale = scale_of(parameter);
  if (group.device_lr.defined()) {
    parameter.mul_(1 - group.device_lr * group.weight_decay);
    // A product of a bf16 tensor and a 0-dim fp32 tensor would be rounded to bf16.
    parameter.sub_(direction.to(at::kFloat) * (group.device_lr * scale));
    return;
  }
  parameter.mul_(1 - group.lr * group.weight_decay);
  parameter.add_(direction, -group.lr * scale);
}

}  // namespace

MuonParamFilter::MuonParamFilter(const config::MuonConfig& config)
    : for_adamw_(config.adamw_params.begin(), config.adamw_params.end()) {}

bool MuonParamFilter::matches(const std::string& name, const at::Tensor& parameter) const {
  return parameter.dim() == 2 &&
         std::ranges::none_of(for_adamw_, [&](const auto& glob) { return glob.matches(name); });
}

void muon_step(const config::MuonConfig& config, Optimizer::Group& group) {
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    const at::Tensor& gradient = group.gradients[i];
    at::Tensor& momentum = group.momentum_buffers[i];
    momentum.lerp_(gradient, 1 - config.momentum);
    const at::Tensor direction =
        config.nesterov ? at::lerp(gradient, momentum, config.momentum) : momentum;
    move(group, group.parameters[i], nearly_orthogonal(direction));
  }
}

}  // namespace stoker::train
