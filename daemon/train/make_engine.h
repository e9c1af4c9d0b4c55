// make_engine(): creates the StepEngine for a device.
//
// Threads: as StepEngine.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <c10/core/Device.h>

#include "daemon/train/step_engine.h"
#include "shared/base/status.h"
#include "shared/config/training_config.h"
#include "shared/ring/shm_ring.h"

namespace stoker::train {

// `device` must come from open_device(). `copies`: the memory of the BatchReceiver, which like `ring`
// must outlive the engine. LibTorch's exceptions pass through.
Result<std::unique_ptr<StepEngine>> make_engine(const config::TrainConfig& config,
                                                c10::Device device, ring::ShmRing& ring,
                                                std::span<std::byte> copies,
                                                StepEngine::Calls calls);

}  // namespace stoker::train
