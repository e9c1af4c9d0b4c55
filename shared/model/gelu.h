// A Linear layer followed by GELU. Under autocast to BF16, with stoker's fused kernels, one kernel adds the bias
// and applies GELU, and one computes the gradients of both; else LibTorch's operators.
//
// Threads: as the model.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

namespace stoker::model {

enum class GeluForm { kExact, kTanh };

// gelu(linear(layer, input)), with the layer's adapter, if it has one.
at::Tensor linear_gelu(const torch::nn::Linear& layer, const at::Tensor& input, GeluForm form);

}  // namespace stoker::model
