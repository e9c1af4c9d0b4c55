#include "daemon/cuda/kernels/adamw_kernel.h"
#include "daemon/cuda/kernels/launch.h"

namespace stoker::cuda {

__global__ void __launch_bounds__(AdamwLaunch::kBlockSize)
    run_adamw(const __grid_constant__ AdamwLaunch launch) {
  adamw_kernel(DeviceBlock(), launch);
}

cudaError_t submit_adamw(const model::AdamwTensor* tensors, int64_t count,
                         const model::AdamwOptions& options, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  launch_adamw(tensors, count, options, [&](const AdamwLaunch& launch, int64_t blocks) {
    run_adamw<<<static_cast<unsigned>(blocks), AdamwLaunch::kBlockSize, 0, stream>>>(launch);
    if (error == cudaSuccess) error = cudaPeekAtLastError();
  });
  return error;
}

}  // namespace stoker::cuda
