// Training errors: maps the exception that ended a step to a status, with hints for the user.
//
// Threads: pure functions; none of them accesses a device.
#pragma once

#include <exception>
#include <string>

#include "daemon/train/training_state.h"
#include "shared/base/status.h"
#include "shared/config/config.h"

namespace stoker::train {

// kOutOfMemory (host or device, with the allocator's summary), kDeviceLost (the device context is
// unusable), kMismatch (token id out of the vocabulary of a model file), kInvalidArgument (a micro-batch of
// one for batch_norm), what the system does not permit (a thread: kBusy), kInternal. The message is
// a single line.
Status to_status(const std::exception& error);

// "the model uses 475 MiB, its gradients 475 MiB, the optimizer 950 MiB"; for any device.
std::string memory_usage(TrainingState& state, uint64_t tree_bytes);
// Settings that reduce the memory of a step: smaller micro-batches with more accumulation,
// activation checkpointing, bf16.
std::string memory_saving_hints(const config::Config& config);

}  // namespace stoker::train
