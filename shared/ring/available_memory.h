// available_memory: how much memory this process may still take, by the machine and by its memory cgroup
// (1 or 2).
//
// Threads: any.
// Errors:  none; where nothing is known, the answer is "unlimited" and the allocation decides.
#pragma once

#include <cstdint>
#include <string>

namespace stoker::ring {

struct AvailableMemory {
  uint64_t bytes = ~0ull;
  std::string limit;  // what sets it: "the machine's memory", "memory cgroup /sys/fs/cgroup/…"
};
AvailableMemory available_memory();

}  // namespace stoker::ring
