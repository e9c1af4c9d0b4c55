// available_memory: the memory that this process can still allocate.
//
// Threads:  a pure function of the system's files.
// Blocking: reads small files.
// Errors:   what cannot be read does not limit.
#pragma once

#include <cstdint>
#include <string>

namespace stoker {

struct AvailableMemory {
  uint64_t bytes = ~0ull;
  std::string limit;  // name of the limit: "the machine's memory", "memory cgroup /sys/fs/cgroup/…"
};

// Limited by the machine and by the memory cgroup (v1 or v2) of this process.
AvailableMemory available_memory();

}  // namespace stoker
