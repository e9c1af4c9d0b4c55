// CudaModule: the function table that libstoker_cuda.so exports to stokerd, so that neither links
// the other.
//
// tests/support/fake_device has such a table, too, which is linked.
//
// Loading the module with RTLD_GLOBAL loads LibTorch's CUDA libraries into the process; LibTorch
// then supports `cuda` tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "daemon/cuda/device_streams.h"
#include "daemon/group/device_collectives.h"
#include "shared/model/kernel_table.h"

namespace stoker::cuda {

inline constexpr int kModuleVersion = 10;
inline constexpr const char* kModuleFile = "libstoker_cuda.so";
inline constexpr const char* kModuleEntry = "stoker_cuda_module";

// The fused kernels of a device, or the reason why there are none.
struct FusedKernels {
  const model::KernelTable* maybe_table = nullptr;
  std::string reason;
};

struct CudaModule {
  int version = kModuleVersion;
  int (*device_count)() = nullptr;  // 0 without a driver; never throws
  // Page-locks host memory, so that copies from it are asynchronous. False if the driver rejects
  // it.
  bool (*pin_host_memory)(void* bytes, size_t size) = nullptr;
  void (*unpin_host_memory)(void* bytes) = nullptr;
  // See preload_nvrtc(); called once a device is chosen.
  std::string (*preload_nvrtc)() = nullptr;
  // See CudaStreams; throws c10::Error.
  std::unique_ptr<DeviceStreams> (*open_streams)(int device) = nullptr;
  // Null: none for this kind of device.
  FusedKernels (*fused_kernels)(int device) = nullptr;
  // Opens the GPU, or a part of it (MIG) that is a separate device: "GPU-2f0c…". Empty if it cannot be
  // opened.
  std::string (*device_uuid)(int device) = nullptr;
  // Opens the collectives of a group for this device, which becomes the current one of the thread;
  // throws c10::Error.
  using OpenCollectives = std::unique_ptr<group::DeviceCollectives> (*)(
      int device, const group::CollectivesOptions& options);
  // Returns null if the build has none, or LibTorch has another version of NCCL. Null: this kind of
  // device has none. Only a group calls it, so that a process alone does not need NCCL.
  OpenCollectives (*find_collectives)() = nullptr;
  // Null, or called with memory that a snapshot reuses or frees: makes late reads of it visible.
  void (*poison_host_memory)(void* bytes, size_t size) = nullptr;
};

}  // namespace stoker::cuda
