#include "daemon/cuda/kernels/gelu_kernel.h"
#include "daemon/cuda/kernels/launch.h"

namespace stoker::cuda {

__global__ void __launch_bounds__(kGeluBlockSize) run_gelu(const __grid_constant__ GeluRows rows) {
  gelu_kernel(DeviceBlock(), rows);
}

__global__ void __launch_bounds__(kGeluBlockSize)
    run_gelu_gradient(const __grid_constant__ GeluGradients gradients) {
  gelu_gradient_kernel(DeviceBlock(), gradients);
}

cudaError_t submit_gelu(const model::GeluRows& rows, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(gelu_blocks(rows));
  if (blocks == 0) return cudaSuccess;
  run_gelu<<<blocks, kGeluBlockSize, 0, stream>>>(rows);
  return cudaPeekAtLastError();
}

cudaError_t submit_gelu_backward(const model::GeluGradients& gradients, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(gelu_gradient_blocks(gradients));
  if (blocks == 0) return cudaSuccess;
  run_gelu_gradient<<<blocks, kGeluBlockSize, 0, stream>>>(gradients);
  return cudaPeekAtLastError();
}

}  // namespace stoker::cuda
