#include "daemon/train/make_engine.h"

#include <utility>

#include "daemon/train/cpu_engine.h"
#include "daemon/train/device.h"
#include "daemon/train/device_engine.h"
#include "daemon/train/pinned_memory.h"

namespace stoker::train {

Result<std::unique_ptr<StepEngine>> make_engine(const config::TrainConfig& config,
                                                c10::Device device, ring::ShmRing& ring,
                                                feed::BatchShapes shapes, StepEngine::Calls calls) {
  using Engine = std::unique_ptr<StepEngine>;
  if (device.is_cpu())
    return Engine(std::make_unique<CpuEngine>(std::move(shapes), std::move(calls)));
  STOKER_ASSIGN_OR_RETURN(const cuda::CudaModule* const module, load_cuda_module());
  // Must come first: it sets the current device of this thread, and the memory is pinned through
  // that device.
  auto queue = module->open_queue(device.index(), ring.layout().slot_bytes(), ring.slots());
  const std::span<std::byte> payload = ring.payload();
  auto pinned = std::make_unique<PinnedMemory>(
      PinnedMemory::Driver{module->pin_host_memory, module->unpin_host_memory}, payload,
      payload.size() / ring.slots());
  return Engine(std::make_unique<DeviceEngine>(
      std::move(queue), std::move(pinned), std::move(shapes),
      DeviceEngineOptions{.device = device,
                          .slots = ring.slots(),
                          .captures = config.cuda_graphs == config::CudaGraphs::kAuto},
      std::move(calls)));
}

}  // namespace stoker::train
