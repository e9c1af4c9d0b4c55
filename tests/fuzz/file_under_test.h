// A file of any bytes, and what must hold of whatever reads it:
//   - it ends with a Status: a message on one line, and a code that blames the file (kCorrupt, or
//     kMismatch for a newer format), not kInternal or kOutOfMemory;
//   - each tensor of it can be read or is refused in the same way, and the same bytes come each time.
// Each ends the process when it is broken.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/tensor_source.h"

namespace stoker::fuzz {

// In memory, read from its beginning.
UniqueFd file_of(std::string_view input);

// Aborts, and says what, where `holds` is false.
void must(bool holds, std::string_view promise);

// Whether it is ok; a refusal must be a decent one.
bool check_status(const Status& status);

// Reads every tensor of at most `max_bytes` bytes, twice; true where one could be read.
bool check_tensors(const checkpoint::TensorSource& file, uint64_t max_bytes);

}  // namespace stoker::fuzz
