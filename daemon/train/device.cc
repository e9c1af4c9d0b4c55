#include "daemon/train/device.h"

#include <dlfcn.h>

#include <cstdlib>

#include <ATen/Context.h>

#include "daemon/train/training_error.h"
#include "shared/base/log.h"
#include "shared/model/fused_kernels.h"

namespace stoker::train {
namespace {

std::string about_module(const char* text) { return std::string(cuda::kModuleFile).append(text); }

}  // namespace

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
    return Status(StatusCode::kMismatch, about_module(": is not a module of stoker"));
  const cuda::CudaModule* const module = entry();
  if (module->version != cuda::kModuleVersion) {
    return Status(StatusCode::kMismatch, about_module(": belongs to another version of stoker"));
  }
  return module;
}

namespace {

Result<c10::Device> open_cuda(int index) {
  STOKER_ASSIGN_OR_RETURN(const cuda::CudaModule* module, load_cuda_module());
  const int count = module->device_count();
  if (count == 0) return group::no_gpu(std::getenv("CUDA_VISIBLE_DEVICES"));
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

// Not a global: it is set while globals are constructed.
FakeModule& registered_fake_module() {
  static FakeModule module = nullptr;
  return module;
}

Result<const cuda::CudaModule*> fake_module(const config::DeviceConfig& device) {
  STOKER_RETURN_IF_ERROR(check_supported_by_build(device));
  return registered_fake_module()(static_cast<uint64_t>(device.index.value_or(0)));
}

}  // namespace

void register_fake_module(FakeModule module) { registered_fake_module() = module; }

Status check_supported_by_build(const config::DeviceConfig& device) {
  if (device.type != config::DeviceConfig::Type::kFake || registered_fake_module() != nullptr)
    return {};
  return Status(
      StatusCode::kInvalidArgument,
      "train.device: fake exists in stoker's own tests only; set it to auto, cpu or cuda");
}

Result<c10::Device> open_device(const config::DeviceConfig& device) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (device.type == config::DeviceConfig::Type::kFake) {
    STOKER_RETURN_IF_ERROR(fake_module(device).status());
    return cpu;
  }
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

group::RankDevice find_rank_device(int local_rank, int local_world_size) {
  const auto module = load_cuda_module();
  if (!module.ok()) return {.uuid = "", .reason = module.status().message()};
  if ((*module)->find_collectives() == nullptr)
    return {.uuid = "",
            .reason = about_module(" was built without NCCL, or for another version of it")};
  const auto index =
      group::device_index_of_rank(local_rank, local_world_size, (*module)->device_count());
  if (!index.ok()) return {.uuid = "", .reason = index.status().message()};
  group::RankDevice device{.index = *index, .uuid = (*module)->device_uuid(*index), .reason = ""};
  if (device.uuid.empty()) device.reason = "cuda:" + std::to_string(*index) + " cannot be opened";
  return device;
}

Result<group::OpenCollectives> find_collectives(int index) {
  STOKER_ASSIGN_OR_RETURN(const cuda::CudaModule* const module, load_cuda_module());
  return group::OpenCollectives(
      [open = module->find_collectives(), index](const group::CollectivesOptions& options) {
        return open(index, options);
      });
}

Result<const cuda::CudaModule*> module_of(const config::DeviceConfig& config, c10::Device device) {
  if (config.type == config::DeviceConfig::Type::kFake) return fake_module(config);
  if (device.is_cpu()) return nullptr;
  return load_cuda_module();
}

Result<cuda::DeviceUsage> release_device_memory(const config::DeviceConfig& config,
                                                c10::Device device) {
  STOKER_ASSIGN_OR_RETURN(const cuda::CudaModule* const module, module_of(config, device));
  if (module == nullptr) return cuda::DeviceUsage{};
  try {
    const auto streams = module->open_streams(device.index());
    streams->release_cached_memory();
    return streams->memory();
  } catch (const c10::Error& error) {
    return to_status(error);
  }
}

void select_fused_kernels(const config::TrainConfig& config, c10::Device device) {
  const bool is_fake = config.device.type == config::DeviceConfig::Type::kFake;
  if (device.is_cpu() && !is_fake) return;  // tests select those of the host
  model::use_fused_kernels(device.type(), {});
  std::string names;
  for (const config::FusedKernelSwitch& each : config::kFusedKernelSwitches)
    if (config.fused_kernels.*each.is_enabled)
      names.append(names.empty() ? "" : ", ").append(each.name);
  if (names.empty()) return;
  const auto module = module_of(config.device, device);
  const cuda::FusedKernels found = module.ok()
                                       ? (*module)->fused_kernels(device.index())
                                       : cuda::FusedKernels{.reason = module.status().message()};
  if (found.maybe_table == nullptr) {
    log_warn("fused kernels unavailable", {{"reason", found.reason}});
    return;
  }
  model::use_fused_kernels(device.type(),
                           model::enabled_kernels(*found.maybe_table, config.fused_kernels));
  log_info("fused kernels enabled", {{"device", device.str()}, {"kernels", names}});
}

Result<writer::PinnedAllocator> make_pinned_allocator(const config::DeviceConfig& config,
                                                      c10::Device device) {
  STOKER_ASSIGN_OR_RETURN(const cuda::CudaModule* const module, module_of(config, device));
  if (module == nullptr) return writer::PinnedAllocator{};
  return writer::PinnedAllocator{.pin = module->pin_host_memory,
                                 .unpin = module->unpin_host_memory,
                                 .poison = module->poison_host_memory};
}

}  // namespace stoker::train
