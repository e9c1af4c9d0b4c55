// SwiGLU (Shazeer, 2020), which a fused kernel computes if there is one for the inputs, else LibTorch's
// operators.
//
// Threads: pure functions.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <ATen/core/Tensor.h>

namespace stoker::model {

// silu(gate) * up, for inputs of the same shape.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace stoker::model
