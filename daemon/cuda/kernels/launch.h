// The launches of the kernels, compiled by nvcc: the functions of model::KernelTable with the stream
// as last argument. An error of a launch is returned, not cleared.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "shared/model/kernel_table.h"

namespace stoker::cuda {

cudaError_t submit_adamw(const model::AdamwTensor* tensors, int64_t count,
                         const model::AdamwOptions& options, cudaStream_t stream);
cudaError_t submit_cross_entropy(const model::CrossEntropyBatch& batch, cudaStream_t stream);
cudaError_t submit_gelu(const model::GeluRows& rows, cudaStream_t stream);
cudaError_t submit_gelu_backward(const model::GeluGradients& gradients, cudaStream_t stream);
cudaError_t submit_norm(const model::NormRows& rows, cudaStream_t stream);
cudaError_t submit_norm_backward(const model::NormGradients& gradients, cudaStream_t stream);
cudaError_t submit_swiglu(const model::SwigluValues& values, cudaStream_t stream);
cudaError_t submit_swiglu_backward(const model::SwigluGradients& gradients, cudaStream_t stream);
cudaError_t submit_rope(const model::RopeRotation& rotation, cudaStream_t stream);

}  // namespace stoker::cuda
