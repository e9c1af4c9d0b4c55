#include "daemon/cuda/kernels/launch.h"
#include "daemon/cuda/kernels/norm_kernel.h"

namespace stoker::cuda {

__global__ void run_norm(const __grid_constant__ NormRows rows) {
  norm_kernel(DeviceBlock(), rows);
}

__global__ void run_norm_gradient(const __grid_constant__ NormGradients gradients) {
  norm_gradient_kernel(DeviceBlock(), gradients);
}

__global__ void run_norm_weight_gradient(const __grid_constant__ NormGradients gradients) {
  norm_weight_gradient_kernel(DeviceBlock(), gradients);
}

cudaError_t submit_norm(const model::NormRows& rows, cudaStream_t stream) {
  if (rows.rows == 0) return cudaSuccess;
  run_norm<<<static_cast<unsigned>(rows.rows), norm_block_size(rows.width), 0, stream>>>(rows);
  return cudaPeekAtLastError();
}

cudaError_t submit_norm_backward(const model::NormGradients& gradients, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(norm_weight_blocks(gradients));
  if (gradients.rows > 0)
    run_norm_gradient<<<static_cast<unsigned>(gradients.rows), norm_block_size(gradients.width), 0,
                        stream>>>(gradients);
  run_norm_weight_gradient<<<blocks, kNormWeightBlockSize, 0, stream>>>(gradients);
  return cudaPeekAtLastError();
}

}  // namespace stoker::cuda
