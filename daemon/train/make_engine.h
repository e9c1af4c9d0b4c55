// make_engine(): creates the StepEngine for a device.
//
// Threads: as StepEngine.
#pragma once

#include <memory>

#include <c10/core/Device.h>

#include "daemon/train/step_engine.h"
#include "shared/base/status.h"
#include "shared/config/training_config.h"
#include "shared/feed/batch_shapes.h"

namespace stoker::train {

// `device` must come from open_device(). `ring` and the plan of `shapes` must outlive the engine.
// LibTorch's exceptions pass through.
Result<std::unique_ptr<StepEngine>> make_engine(const config::TrainConfig& config,
                                                c10::Device device, ring::ShmRing& ring,
                                                feed::BatchShapes shapes, StepEngine::Calls calls);

}  // namespace stoker::train
