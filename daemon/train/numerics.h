// numerics: the switches of LibTorch that hold for a whole process and have a part in what it
// computes: threads, TF32, denormals, determinism.
//
// Threads: the thread that will train; flushing denormals holds for it and for those that compute
//          for it.
#pragma once

#include "shared/config/config.h"

namespace stoker::train {

// Before CUDA is loaded: what its libraries read from the environment when they start.
void prepare_environment(const config::RunConfig& run);

// On the thread that will do the steps, before it computes anything.
void configure_numerics(const config::RunConfig& run, const config::TrainConfig& train);

}  // namespace stoker::train
