// limit_memory: a bound on the memory that this process takes, so that a model or a batch that is
// too large is an error of ours and not the end of something else on the machine.
//
// Threads: before others are started.
// Errors:  kInvalidArgument: more than the system grants this process.
#pragma once

#include <cstdint>
#include <optional>

#include "shared/base/status.h"

namespace stoker::evaluator {

// What is written to counts: heap, tensors, stacks; not programs and libraries. Null: no limit.
Status limit_memory(std::optional<int64_t> mib);

}  // namespace stoker::evaluator
