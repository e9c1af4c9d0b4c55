#include "daemon/cuda/kernels/elementwise_kernel.h"
#include "daemon/cuda/kernels/launch.h"

namespace stoker::cuda {

__global__ void run_swiglu(const __grid_constant__ SwigluValues values) {
  swiglu_kernel(DeviceBlock(), values);
}

__global__ void run_swiglu_gradient(const __grid_constant__ SwigluGradients gradients) {
  swiglu_gradient_kernel(DeviceBlock(), gradients);
}

__global__ void run_rope(const __grid_constant__ RopeRotation rotation, int64_t steps) {
  rope_kernel(DeviceBlock(), rotation, steps);
}

cudaError_t submit_swiglu(const model::SwigluValues& values, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(elementwise_blocks(steps_of(values.size)));
  if (blocks == 0) return cudaSuccess;
  run_swiglu<<<blocks, kElementwiseBlockSize, 0, stream>>>(values);
  return cudaPeekAtLastError();
}

cudaError_t submit_swiglu_backward(const model::SwigluGradients& gradients, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(elementwise_blocks(steps_of(gradients.size)));
  if (blocks == 0) return cudaSuccess;
  run_swiglu_gradient<<<blocks, kElementwiseBlockSize, 0, stream>>>(gradients);
  return cudaPeekAtLastError();
}

cudaError_t submit_rope(const model::RopeRotation& rotation, cudaStream_t stream) {
  const int64_t steps = rope_steps(rotation);
  const auto blocks = static_cast<unsigned>(elementwise_blocks(steps));
  if (blocks == 0) return cudaSuccess;
  run_rope<<<blocks, kElementwiseBlockSize, 0, stream>>>(rotation, steps);
  return cudaPeekAtLastError();
}

}  // namespace stoker::cuda
