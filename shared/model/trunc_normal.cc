// Inverse transform sampling with the same steps as torch.nn.init.trunc_normal_, except for erfinv.
// LibTorch uses MKL for it, whose last bit in float32 depends on the processor and on how threads
// split the tensor. Here it is computed in double precision and rounded. No result for a random
// number from -1 to 1 is within 1.4e-14 (relative) of the midpoint of two floats
// (truncated_normal_test.cc tries all of them), and the error of erfinv is far smaller, so it
// rounds to the same float everywhere.
#include "shared/model/trunc_normal.h"

#include <cmath>
#include <numbers>

#include <ATen/core/grad_mode.h>

namespace stoker::model {
namespace {

double normal_cdf(double x) { return (1.0 + std::erf(x / std::numbers::sqrt2)) / 2.0; }

}  // namespace

void trunc_normal_(const at::Tensor& tensor, double deviation, double mean, double low,
                   double high) {
  const at::NoGradGuard no_grad;
  tensor.uniform_(2 * normal_cdf((low - mean) / deviation) - 1,
                  2 * normal_cdf((high - mean) / deviation) - 1);
  tensor.copy_(tensor.to(at::kDouble).erfinv_())
      .mul_(deviation * std::numbers::sqrt2)
      .add_(mean)
      .clamp_(low, high);
}

}  // namespace stoker::model
