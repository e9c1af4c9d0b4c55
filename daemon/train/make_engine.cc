#include "daemon/train/make_engine.h"

#include <utility>
#include <vector>

#include "daemon/cuda/stream_queue.h"
#include "daemon/train/cpu_engine.h"
#include "daemon/train/device.h"
#include "daemon/train/device_engine.h"
#include "daemon/train/pinned_memory.h"

namespace stoker::train {

Result<std::unique_ptr<StepEngine>> make_engine(const config::TrainConfig& config,
                                                c10::Device device, ring::ShmRing& ring,
                                                std::span<std::byte> copies,
                                                StepEngine::Calls calls) {
  using Engine = std::unique_ptr<StepEngine>;
  STOKER_ASSIGN_OR_RETURN(const cuda::CudaModule* const module, module_of(config.device, device));
  if (module == nullptr) return Engine(std::make_unique<CpuEngine>(std::move(calls)));
  // Must come first: it sets the current device of this thread, and the memory is pinned through
  // that device.
  auto queue = std::make_unique<cuda::StreamQueue>(module->open_streams(device.index()),
                                                   ring.layout().slot_bytes(), ring.slots());
  std::vector<std::unique_ptr<PinnedMemory>> pinned;
  for (const std::span<std::byte> memory : {ring.payload(), copies})
    pinned.push_back(std::make_unique<PinnedMemory>(
        PinnedMemory::Driver{module->pin_host_memory, module->unpin_host_memory}, memory,
        memory.size() / ring.slots()));
  return Engine(std::make_unique<DeviceEngine>(
      std::move(queue), std::move(pinned),
      DeviceEngineOptions{.device = device,
                          .slots = ring.slots(),
                          .captures = config.cuda_graphs == config::CudaGraphs::kAuto},
      std::move(calls)));
}

}  // namespace stoker::train
