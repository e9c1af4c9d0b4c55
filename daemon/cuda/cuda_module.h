// CudaModule: what libstoker_cuda.so gives to stokerd: a table of functions, so that neither side
// links the other.
//
// Loading it with RTLD_GLOBAL brings LibTorch's CUDA part into the process; after that, LibTorch's
// tensors know `cuda`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "daemon/cuda/device_queue.h"

namespace stoker::cuda {

inline constexpr int kModuleVersion = 3;
inline constexpr const char* kModuleFile = "libstoker_cuda.so";
inline constexpr const char* kModuleEntry = "stoker_cuda_module";

struct CudaModule {
  int version = kModuleVersion;
  int (*device_count)() = nullptr;  // 0 without a driver; never throws
  // Makes host memory page-locked, so that copies from it are asynchronous. False when the driver
  // refuses.
  bool (*pin_host_memory)(void* bytes, size_t size) = nullptr;
  void (*unpin_host_memory)(void* bytes) = nullptr;
  // As CudaQueue; throws c10::Error.
  std::unique_ptr<DeviceQueue> (*open_queue)(int device, size_t slot_bytes, size_t slots) = nullptr;
};

}  // namespace stoker::cuda
