// By the inverse of the distribution function: a uniform number between the function's values at
// both ends, taken back through it. The steps are torch.nn.init's, so that the last bits agree.
#include "shared/model/truncated_normal.h"

#include <cmath>
#include <numbers>

#include <ATen/core/grad_mode.h>

namespace stoker::model {
namespace {

constexpr double kEnd = 2.0;

double below(double x) { return (1.0 + std::erf(x / std::numbers::sqrt2)) / 2.0; }

}  // namespace

void truncated_normal_(const at::Tensor& tensor, double deviation) {
  const at::NoGradGuard no_grad;
  const double low = below(-kEnd / deviation), high = below(kEnd / deviation);
  tensor.uniform_(2 * low - 1, 2 * high - 1)
      .erfinv_()
      .mul_(deviation * std::numbers::sqrt2)
      .add_(0.0)
      .clamp_(-kEnd, kEnd);
}

}  // namespace stoker::model
