// linear(): applies a Linear layer with the fastest matrix product that the processor has.
//
// LibTorch uses MKL; on AMD processors with AVX-512, oneDNN takes half of the time for large
// matrices (cpu_matmul.h). There, F32 on the CPU uses oneDNN for the forward and the backward pass,
// as a single autograd node. Everything else, including small matrices and autocast, uses
// at::linear().
//
// Threads: uses all LibTorch threads.
// Errors:  exceptions of LibTorch are propagated. The oneDNN path does not support double backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

namespace stoker::model {

// `input` […, in_features]; returns […, out_features]. With its adapter, if it has one (lora.h).
at::Tensor linear(const torch::nn::Linear& layer, const at::Tensor& input);

// For a weight [out_features, in_features] that is not one of a layer. `bias` may be undefined.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

// The oneDNN path regardless of processor and size, for tests. F32 on the CPU; `bias` may be
// undefined.
at::Tensor onednn_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace stoker::model
