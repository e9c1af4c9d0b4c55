#include "daemon/cuda/kernels/cross_entropy_kernel.h"
#include "daemon/cuda/kernels/launch.h"

namespace stoker::cuda {

__global__ void __launch_bounds__(kCrossEntropyBlockSize)
    run_cross_entropy(const __grid_constant__ CrossEntropyBatch batch) {
  cross_entropy_kernel(DeviceBlock(), batch);
}

cudaError_t submit_cross_entropy(const model::CrossEntropyBatch& batch, cudaStream_t stream) {
  if (batch.rows == 0) return cudaSuccess;
  run_cross_entropy<<<static_cast<unsigned>(batch.rows), kCrossEntropyBlockSize, 0, stream>>>(
      batch);
  return cudaPeekAtLastError();
}

}  // namespace stoker::cuda
