// A pause in which no trainer exists, because the memory of the device was given back (`pause
// --release`). The state is in the last checkpoint, from which the next trainer resumes.
//
// Threads:  the trainer thread.
// Blocking: wait_while_released() until `resume`, `stop` or the stop token.
#pragma once

#include <stop_token>

#include "daemon/cuda/device_streams.h"
#include "daemon/train/trainer_channels.h"

namespace stoker::train {

// Answers the commands that requested it and publishes the status, after the trainer and its state were
// destroyed. `usage`: of the device since then.
void publish_released(TrainerChannels& channels, const cuda::DeviceUsage& usage);

// Answers commands: what needs a trainer gets kBusy. False: the run stops.
bool wait_while_released(TrainerChannels& channels, const std::stop_token& stop);

}  // namespace stoker::train
