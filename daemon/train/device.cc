#include "daemon/train/device.h"

#include <dlfcn.h>

#include <ATen/Context.h>

#include "shared/base/log.h"

namespace stoker::train {
Result<const cuda::CudaModule*> load_cuda_module() {
  // RTLD_GLOBAL, because LibTorch's CUDA hooks register in a process-wide registry.
  void* const library = ::dlopen(cuda::kModuleFile, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return Status(StatusCode::kNotFound,
                  std::string("no CUDA module: ") + (why != nullptr ? why : cuda::kModuleFile));
  }
  const auto entry =
      reinterpret_cast<const cuda::CudaModule* (*)()>(::dlsym(library, cuda::kModuleEntry));
  if (entry == nullptr)
    return Status(StatusCode::kMismatch,
                  std::string(cuda::kModuleFile) + ": is not a module of stoker");
  const cuda::CudaModule* const module = entry();
  if (module->version != cuda::kModuleVersion) {
    return Status(StatusCode::kMismatch,
                  std::string(cuda::kModuleFile) + ": belongs to another version of stoker");
  }
  return module;
}

namespace {

Result<c10::Device> open_cuda(int index) {
  STOKER_ASSIGN_OR_RETURN(const cuda::CudaModule* module, load_cuda_module());
  const int count = module->device_count();
  if (count == 0)
    return Status(StatusCode::kNotFound,
                  "no CUDA device available (driver missing, or no device visible)");
  if (index >= count) {
    return Status(StatusCode::kInvalidArgument, "there is no cuda:" + std::to_string(index) +
                                                    "; this machine has " + std::to_string(count));
  }
  if (const std::string reason = module->preload_nvrtc(); !reason.empty()) {
    at::globalContext().setSDPUseCuDNN(false);  // its kernels are compiled by NVRTC
    log_warn("cudnn attention disabled", {{"reason", reason}});
  }
  return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
}

}  // namespace

Result<c10::Device> open_device(const config::DeviceConfig& device) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (device.type == config::DeviceConfig::Type::kCpu) return cpu;
  const auto cuda = open_cuda(device.index.value_or(0));
  if (cuda.ok()) return *cuda;
  if (device.type == config::DeviceConfig::Type::kCuda)
    return Status(StatusCode::kInvalidArgument, "train.device: " + config::to_string(device) +
                                                    ": " + cuda.status().message() +
                                                    "; set it to cpu or auto");
  log_info("device fallback", {{"device", "cpu"}, {"reason", cuda.status().message()}});
  return cpu;
}

Result<writer::PinnedAllocator> make_pinned_allocator(c10::Device device) {
  if (device.is_cpu()) return writer::PinnedAllocator{};
  STOKER_ASSIGN_OR_RETURN(const cuda::CudaModule* const module, load_cuda_module());
  return writer::PinnedAllocator{module->pin_host_memory, module->unpin_host_memory};
}

}  // namespace stoker::train
