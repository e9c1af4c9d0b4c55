// sandbox: restricts a worker process before it reads the first sample, so that a corrupt or
// malicious file that exploits a decoder gains very little.
//
// The process gets no new privileges, no core dump (it would contain the ring), a limit on its
// address space, and only the system calls that reading needs (syscall_filter.h). Only root can
// attach to it, read its memory, or see its descriptors, mappings and kernel function in /proc.
//
// Threads:    enter_sandbox() applies to every thread of the process.
// Errors:     as the kernel returns them; kPermission: see install_syscall_filter(). If the kernel
//             has no seccomp, a warning is logged instead.
// Sanitizers: builds with a sanitizer skip the address space limit and the system call filter,
//             because the sanitizer would not work with them.
#pragma once

#include <cstdint>
#include <optional>
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
  int threads = 1;            // worker threads that will be started
  uint64_t memory_bytes = 0;  // address space per worker thread; 0: no limit
  // Number of read-ahead threads, and the number of bytes they may hold.
  int reads_ahead = 0;
  uint64_t read_ahead_bytes = 0;
  bool filter = true;                    // install the system call filter
  std::vector<int> writable_fds;         // see Dataset::writable_fds()
  std::optional<int> reply_fd;           // a socket to the parent
  std::optional<int> listening_fd = {};  // a socket that producers connect to
};

// Must be called at the start of the process.
Status disable_core_dumps_and_privileges();

// Must be called after the ring and the dataset are opened, because their memory is not counted,
// and before the worker threads start. `denied_syscall`: see install_syscall_filter().
Status enter_sandbox(const SandboxOptions& options, uint64_t& denied_syscall);

}  // namespace stoker::feeder
