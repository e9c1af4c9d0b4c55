// Class weights of a checkpoint: the numbers that task.class_weights: balanced came to when the run
// began: a tensor of trainer_state.safetensors, F64 [classes].
//
// Threads: functions of their arguments.
// Errors:  kCorrupt: the tensor is not what such numbers are; those of VerifiedCheckpoint.
#pragma once

#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/store.h"

namespace stoker::checkpoint {

inline constexpr const char* kClassWeights = "class_weights";

// None where the checkpoint has none.
Result<std::vector<double>> read_class_weights(const VerifiedCheckpoint& saved);

}  // namespace stoker::checkpoint
