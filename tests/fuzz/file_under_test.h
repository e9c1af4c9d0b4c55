// Checks the invariants that hold for any reader of a file with arbitrary bytes:
// - it returns a Status. An error has a one-line message and a code that attributes it to the file
//   (kCorrupt, or kMismatch for a newer format), not kInternal or kOutOfMemory;
// - each tensor either can be read, with the same bytes every time, or is rejected with such an
//   error.
// A violated invariant aborts the process.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/tensor_source.h"

namespace stoker::fuzz {

// An in-memory file, positioned at its start.
UniqueFd make_memory_file(std::string_view input);

// Aborts with the message `message` if `holds` is false.
void check_invariant(bool holds, std::string_view message);

// Whether the status is ok. Aborts if an error violates the invariants above.
bool check_status(const Status& status);

// Reads every tensor of at most `max_bytes` bytes twice; true if at least one could be read.
bool check_tensors(const checkpoint::TensorSource& file, uint64_t max_bytes);

}  // namespace stoker::fuzz
