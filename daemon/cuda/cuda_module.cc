#include "daemon/cuda/cuda_module.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <string_view>

#include <c10/cuda/CUDAFunctions.h>

#include "daemon/cuda/cuda_streams.h"
#include "daemon/cuda/fused_kernels.h"
#include "daemon/cuda/nccl_collectives.h"
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

// As nvidia-smi writes it. cudaFree() opens the device, which takes seconds: before the ranks meet, not
// while they wait for each other in NCCL.
std::string device_uuid(int device) {
  cudaDeviceProp properties{};
  if (cudaSetDevice(device) != cudaSuccess || cudaFree(nullptr) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    (void)cudaGetLastError();
    return "";
  }
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(properties.uuid.bytes); ++i) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(properties.uuid.bytes[i]);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

std::string load_nvrtc() {
  Dl_info runtime{};
  if (::dladdr(reinterpret_cast<void*>(&cudaRuntimeGetVersion), &runtime) == 0)
    return "the path of CUDA's runtime library is unknown";
  const std::string path = runtime.dli_fname;
  return preload_nvrtc(path.substr(0, path.rfind('/')), CUDART_VERSION / 1000);
}

CudaModule::OpenCollectives find_collectives() {
#ifdef STOKER_NCCL
  if (is_nccl_of_libtorch()) return open_nccl_collectives;
#endif
  return nullptr;
}

}  // namespace
}  // namespace stoker::cuda

extern "C" const stoker::cuda::CudaModule* stoker_cuda_module() {
  static const stoker::cuda::CudaModule module{.device_count = stoker::cuda::device_count,
                                               .pin_host_memory = stoker::cuda::pin_host_memory,
                                               .unpin_host_memory = stoker::cuda::unpin_host_memory,
                                               .preload_nvrtc = stoker::cuda::load_nvrtc,
                                               .open_streams = stoker::cuda::open_cuda_streams,
                                               .fused_kernels = stoker::cuda::fused_kernels,
                                               .device_uuid = stoker::cuda::device_uuid,
                                               .find_collectives = stoker::cuda::find_collectives};
  return &module;
}
