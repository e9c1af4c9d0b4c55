// HostMemory: the current and the peak resident memory of this process.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace stoker::app {

struct HostMemory {
  uint64_t rss_bytes = 0;
  uint64_t peak_bytes = 0;
};

// From /proc/self/status; 0 for a missing field.
HostMemory read_host_memory();

}  // namespace stoker::app
