// A pause in which no trainer exists, because the memory of the device was released (`pause
// --release`). The state is in the last checkpoint, from which the next trainer resumes.
//
// Threads:  the trainer thread.
// Blocking: wait_while_released() until `resume`, `stop` or the stop token.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string_view>

#include "daemon/cuda/device_streams.h"
#include "daemon/train/trainer_channels.h"

namespace stoker::train {

// The reply to `pause --release` if the memory stays where it is, for this reason.
void answer_unreleased(const Done& done, uint64_t step, std::string_view reason);
inline constexpr std::string_view kNoDeviceMemory =
    "training on the CPU has no memory of a device to release";

// Publishes the status and answers the commands that requested the release, after the trainer and its
// state were destroyed. `last`: the status of that trainer at its end. `usage`: of the device since then; an
// error, which is logged, means that its memory is not known to be released.
void publish_released(TrainerChannels& channels, control::TrainerStatus last,
                      const Result<cuda::DeviceUsage>& usage);

// Answers commands: what needs a trainer gets kBusy. After `resume`, publishes that training starts and
// returns true. False: the run stops.
bool wait_while_released(TrainerChannels& channels, const std::stop_token& stop);

}  // namespace stoker::train
