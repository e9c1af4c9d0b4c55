// failure: what an exception that ended a step means, and what its user can do about it.
//
// Threads: functions of their arguments; none of them touches a device.
#pragma once

#include <exception>
#include <string>

#include "daemon/train/training_state.h"
#include "shared/base/status.h"
#include "shared/config/config.h"

namespace stoker::train {

// kOutOfMemory (of host or device, with the allocator's summary), kDeviceLost (the device's context
// is of no use any more), kMismatch (a model in a file does not know a token), kInternal. On one line.
Status to_status(const std::exception& error);

// "the model takes 475 MiB, its gradients 475 MiB, the optimizer 950 MiB"; on whatever device.
std::string memory_usage(TrainingState& state);
// Settings by which a step of the same meaning takes less.
std::string memory_saving_hints(const config::Config& config);

}  // namespace stoker::train
