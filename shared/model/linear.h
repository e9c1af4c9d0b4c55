// linear(): what a Linear layer gives, by the fastest product of matrices that this processor has.
//
// LibTorch's own goes through MKL; on AMD's processors with AVX-512 oneDNN takes half of the time for
// large matrices (cpu_matmul.h). There F32 on the CPU goes that way, forward and backward, as one node
// of autograd's graph; all else, small matrices and autocast among it, is the layer's own.
//
// Threads:  as many as LibTorch has.
// Errors:   LibTorch's exceptions pass through. On that way there are no gradients of gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

namespace stoker::model {

// `input` […, in_features] gives […, out_features].
at::Tensor linear(const torch::nn::Linear& layer, const at::Tensor& input);

// The same whatever the processor and the sizes: for tests. F32 on the CPU; `bias` may be undefined.
at::Tensor onednn_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace stoker::model
