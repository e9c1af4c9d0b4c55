// LayerNorm and RMSNorm over the last dimension, which a fused kernel computes if there is one for the
// input, else LibTorch's operators.
//
// The kernel is used under autocast to BF16, for an F32 residual stream. Its output is BF16, the dtype
// to which the following linear layer converts it anyway.
//
// Threads: pure functions.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <ATen/core/Tensor.h>

namespace stoker::model {

// `bias` undefined: RMSNorm.
struct NormWeights {
  at::Tensor weight, bias;
  double eps = 0;
  bool is_residual = false;  // the output is added to later, so it stays in F32: no kernel
};

at::Tensor norm(const at::Tensor& x, const NormWeights& weights);

struct AddedNorm {
  at::Tensor sum;     // x + delta
  at::Tensor output;  // norm(sum)
};
AddedNorm add_norm(const at::Tensor& x, const at::Tensor& delta, const NormWeights& weights);

}  // namespace stoker::model
