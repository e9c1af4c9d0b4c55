#include "ctl/gpu_usage.h"

#include <dlfcn.h>

#include <utility>

namespace stoker::ctl {

// The part of nvml.h that is used; its ABI is stable.
struct GpuUsage::Functions {
  using Device = struct Opaque*;
  struct Utilization {
    unsigned gpu, memory;
  };
  struct Memory {
    unsigned long long total, free, used;
  };
  static constexpr int kSuccess = 0;
  static constexpr int kGpuTemperature = 0;

  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;  // mW

  template <typename Function>
  bool load(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    return function != nullptr;
  }
  bool load_all() {
    return load(init, "nvmlInit_v2") && load(shutdown, "nvmlShutdown") &&
           load(count, "nvmlDeviceGetCount_v2") && load(handle, "nvmlDeviceGetHandleByIndex_v2") &&
           load(name, "nvmlDeviceGetName") && load(utilization, "nvmlDeviceGetUtilizationRates") &&
           load(memory, "nvmlDeviceGetMemoryInfo") &&
           load(temperature, "nvmlDeviceGetTemperature") && load(power, "nvmlDeviceGetPowerUsage");
  }
};

std::optional<GpuUsage> GpuUsage::open(const std::string& library) {
  Functions functions;
  functions.library = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (functions.library == nullptr) return std::nullopt;
  if (functions.load_all() && functions.init() == Functions::kSuccess) {
    unsigned count = 0;
    if (functions.count(&count) == Functions::kSuccess && count > 0)
      return GpuUsage(new Functions(functions));
    functions.shutdown();
  }
  ::dlclose(functions.library);
  return std::nullopt;
}

GpuUsage::GpuUsage(GpuUsage&& other) noexcept
    : functions_(std::exchange(other.functions_, nullptr)) {}

GpuUsage& GpuUsage::operator=(GpuUsage&& other) noexcept {
  std::swap(functions_, other.functions_);
  return *this;
}

GpuUsage::~GpuUsage() {
  if (functions_ == nullptr) return;
  functions_->shutdown();
  ::dlclose(functions_->library);
  delete functions_;
}

std::vector<Gpu> GpuUsage::read() const {
  constexpr unsigned kMaxGpus = 64;
  std::vector<Gpu> gpus;
  unsigned count = 0;
  if (functions_->count(&count) != Functions::kSuccess) return gpus;
  for (unsigned i = 0; i < count && i < kMaxGpus; ++i) {
    Functions::Device device = nullptr;
    if (functions_->handle(i, &device) != Functions::kSuccess) continue;
    Gpu gpu{.index = static_cast<int>(i)};
    char name[96] = {};
    if (functions_->name(device, name, sizeof name - 1) == Functions::kSuccess) gpu.name = name;
    Functions::Utilization utilization{};
    if (functions_->utilization(device, &utilization) == Functions::kSuccess)
      gpu.load_percent = utilization.gpu;
    Functions::Memory memory{};
    if (functions_->memory(device, &memory) == Functions::kSuccess) {
      gpu.memory_used_bytes = memory.used;
      gpu.memory_total_bytes = memory.total;
    }
    unsigned value = 0;
    if (functions_->temperature(device, Functions::kGpuTemperature, &value) == Functions::kSuccess)
      gpu.celsius = value;
    if (functions_->power(device, &value) == Functions::kSuccess) gpu.watts = value / 1000.0;
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace stoker::ctl
