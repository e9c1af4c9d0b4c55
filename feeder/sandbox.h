// confinement: what a reader process gives up before it reads the first sample, so that a damaged
// or hostile file that takes over a decoder has got hold of very little.
//
// No new privileges; no core dump (the ring would be in it); a limit on its address space; and only
// the system calls that reading takes (syscall_filter.h).
//
// Threads: enter_sandbox() binds every thread of the process.
// Errors:  as the kernel returns them; kPermission: see install_syscall_filter(). A kernel without
//          seccomp is a warning in the log, not an error.
// Sanitizers: a build under one keeps its address space and its system calls: the sanitizer needs
//             both.
#pragma once

#include <cstdint>
#include <vector>

#include "shared/base/status.h"

namespace stoker::feeder {

inline constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

struct SandboxOptions {
  int threads = 1;            // reading threads that will be started
  uint64_t memory_bytes = 0;  // of address space, for each of them; 0: no limit
  // Threads that only read ahead, and the bytes that they may hold.
  int reads_ahead = 0;
  uint64_t read_ahead_bytes = 0;
  bool filter = true;             // of system calls
  std::vector<int> writable_fds;  // descriptors: as Dataset::writable_fds()
};

// At the very start of the process.
Status disable_core_dumps_and_privileges();

// After the ring and the data set are opened, whose memory is not counted, and before the reading
// threads are started. `denied_syscall`: see install_syscall_filter().
Status enter_sandbox(const SandboxOptions& options, uint64_t& denied_syscall);

}  // namespace stoker::feeder
