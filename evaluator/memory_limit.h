// limit_memory: limits the memory of this process (RLIMIT_DATA), so that a model or batch that is
// too large fails here instead of triggering the OOM killer for another process.
//
// Threads: call before other threads are started.
// Errors:  kInvalidArgument: `mib` exceeds the hard limit of this process.
#pragma once

#include <cstdint>
#include <optional>

#include "shared/base/status.h"

namespace stoker::evaluator {

// Counts writable private memory (heap, tensors, stacks), not program code or libraries. Null: no
// limit.
Status limit_memory(std::optional<int64_t> mib);

}  // namespace stoker::evaluator
