#include "tests/support/fake_device/fake_module.h"

#include <atomic>
#include <memory>

#include "tests/support/fake_device/device_allocator.h"
#include "tests/support/fake_device/fake_streams.h"
#include "tests/support/fake_device/fused_kernels.h"

namespace stoker::fake_device {
namespace {

std::atomic<uint64_t> next_seed{0};  // each engine of a run has another schedule

}  // namespace

const cuda::CudaModule* module_of_seed(uint64_t seed) {
  static const bool is_seeded = [seed] {
    next_seed = seed;
    install_device_allocator();
    return true;
  }();
  static const cuda::CudaModule module{
      .device_count = [] { return 1; },
      .pin_host_memory = pin,
      .unpin_host_memory = unpin,
      .preload_nvrtc = [] { return std::string(); },
      .open_streams = [](int) -> std::unique_ptr<cuda::DeviceStreams> {
        return std::make_unique<FakeStreams>(FakeDeviceOptions{.seed = next_seed++});
      },
      .fused_kernels = fused_kernels,
      .poison_host_memory = poison};
  return is_seeded ? &module : nullptr;
}

}  // namespace stoker::fake_device
