#include "daemon/cuda/cuda_module.h"

#include <cuda_runtime_api.h>

#include <c10/cuda/CUDAFunctions.h>

namespace stoker::cuda {
namespace {

int device_count() { return c10::cuda::device_count(); }

bool pin_host_memory(void* bytes, size_t size) {
  if (size == 0) return true;
  if (cudaHostRegister(bytes, size, cudaHostRegisterPortable) == cudaSuccess) return true;
  (void)cudaGetLastError();  // otherwise the next CUDA call of LibTorch would report it
  return false;
}

void unpin_host_memory(void* bytes) {
  if (cudaHostUnregister(bytes) != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace
}  // namespace stoker::cuda

extern "C" const stoker::cuda::CudaModule* stoker_cuda_module() {
  static const stoker::cuda::CudaModule module{
      stoker::cuda::kModuleVersion, stoker::cuda::device_count, stoker::cuda::pin_host_memory,
      stoker::cuda::unpin_host_memory};
  return &module;
}
