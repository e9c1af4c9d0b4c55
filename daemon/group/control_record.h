// ControlRecord: what the ranks tell each other in each step, in the same collective as its gradients,
// so that all take the same decisions at the same step boundary without further communication.
//
// It is summed over the ranks like the gradients: a request counts the ranks that have it, and a
// command comes from the chief alone.
//
// Threads: values; pure functions.
#pragma once

#include <array>
#include <cstdint>

#include "shared/base/status.h"

namespace stoker::group {

// A command that changes how all ranks continue. Other commands concern the chief only.
enum class SharedCommand : uint8_t { kNone, kPause, kResume, kSetLearningRate };

struct ControlRecord {
  uint64_t step = 0;           // completed steps; the same on all ranks
  uint64_t stop = 0;           // ranks that have been requested to stop
  uint64_t save = 0;           // ranks that have been requested to save
  uint64_t sample_errors = 0;  // since the start, on the ranks other than the chief
  SharedCommand command = SharedCommand::kNone;  // of the chief
  double argument = 0;                           // of the command
  bool operator==(const ControlRecord&) const = default;
};

// Numbers that a sum of F64 does not change: integers up to 2^53, and one double of the chief.
using ControlNumbers = std::array<double, 6>;

ControlNumbers to_numbers(const ControlRecord& own);
// From the sum over all ranks. kInternal: the ranks are at different steps.
Result<ControlRecord> parse_sum(const ControlNumbers& sum, uint64_t own_step, int world_size);

}  // namespace stoker::group
