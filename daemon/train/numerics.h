// numerics: configures the process-wide LibTorch settings that affect results: threads, TF32,
// denormals, determinism.
//
// Threads: call from the trainer thread. Denormal flushing applies to that thread and its compute
//          threads.
#pragma once

#include "shared/base/status.h"
#include "shared/config/config.h"

namespace stoker::train {

// Sets environment variables that the CUDA libraries read. Call before CUDA is loaded.
void prepare_environment(const config::RunConfig& run);

// Call on the trainer thread before it computes anything. kBusy: the system permits fewer threads.
Status configure_numerics(const config::RunConfig& run, const config::TrainConfig& train);

}  // namespace stoker::train
