// HostMemory: how much of the host's memory this process has, and has had.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace stoker::app {

struct HostMemory {
  uint64_t rss_bytes = 0;
  uint64_t peak_bytes = 0;
};

// As the kernel counts it; 0 where /proc says nothing.
HostMemory read_host_memory();

}  // namespace stoker::app
