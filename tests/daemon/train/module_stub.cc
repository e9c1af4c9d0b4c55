// A CUDA module for tests of what stokerd does with it, as one that was built without nvcc, on a machine without NVRTC.
#include "daemon/cuda/cuda_module.h"
#include "daemon/cuda/fused_kernels.h"

extern "C" const stoker::cuda::CudaModule* stoker_cuda_module() {
  static const stoker::cuda::CudaModule module{
      .device_count = [] { return 1; },
      .preload_nvrtc = [] { return std::string("no NVRTC on this machine"); },
      .fused_kernels = stoker::cuda::fused_kernels};
  return &module;
}
