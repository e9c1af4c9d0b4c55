#include "daemon/cuda/cuda_module.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <c10/cuda/CUDAFunctions.h>

#include "daemon/cuda/cuda_streams.h"
#include "daemon/cuda/fused_kernels.h"
#include "daemon/cuda/preload_nvrtc.h"

namespace stoker::cuda {
namespace {

int device_count() { return c10::cuda::device_count(); }

bool pin_host_memory(void* bytes, size_t size) {
  if (size == 0) return true;
  if (cudaHostRegister(bytes, size, cudaHostRegisterPortable) == cudaSuccess) return true;
  (void)cudaGetLastError();  // otherwise LibTorch's next CUDA call reports this error
  return false;
}

void unpin_host_memory(void* bytes) {
  if (cudaHostUnregister(bytes) != cudaSuccess) (void)cudaGetLastError();
}

std::string load_nvrtc() {
  Dl_info runtime{};
  if (::dladdr(reinterpret_cast<void*>(&cudaRuntimeGetVersion), &runtime) == 0)
    return "the path of CUDA's runtime library is unknown";
  const std::string path = runtime.dli_fname;
  return preload_nvrtc(path.substr(0, path.rfind('/')), CUDART_VERSION / 1000);
}

}  // namespace
}  // namespace stoker::cuda

extern "C" const stoker::cuda::CudaModule* stoker_cuda_module() {
  static const stoker::cuda::CudaModule module{.device_count = stoker::cuda::device_count,
                                               .pin_host_memory = stoker::cuda::pin_host_memory,
                                               .unpin_host_memory = stoker::cuda::unpin_host_memory,
                                               .preload_nvrtc = stoker::cuda::load_nvrtc,
                                               .open_streams = stoker::cuda::open_cuda_streams,
                                               .fused_kernels = stoker::cuda::fused_kernels};
  return &module;
}
