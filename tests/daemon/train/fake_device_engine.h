// Engines of a Session on a simulated device.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "daemon/cuda/stream_queue.h"
#include "daemon/train/device_engine.h"
#include "shared/ring/shm_ring.h"
#include "tests/support/fake_device/fake_streams.h"

namespace stoker::train {

// The ring is that of the session, which creates it later and the engine after that.
using LaterRing = std::shared_ptr<const ring::ShmRing*>;
inline LaterRing make_later_ring() { return std::make_shared<const ring::ShmRing*>(nullptr); }

inline StepEngine::Factory on_fake_device(LaterRing ring, fake_device::FakeDeviceOptions device,
                                          bool captures = true) {
  return [ring = std::move(ring), device = std::move(device), captures](StepEngine::Calls calls) {
    return Result<std::unique_ptr<StepEngine>>(std::make_unique<DeviceEngine>(
        std::make_unique<cuda::StreamQueue>(std::make_unique<fake_device::FakeStreams>(device),
                                            (*ring)->layout().slot_bytes(), (*ring)->slots()),
        std::vector<std::unique_ptr<PinnedMemory>>(),
        DeviceEngineOptions{.slots = (*ring)->slots(), .captures = captures}, std::move(calls)));
  };
}

}  // namespace stoker::train
