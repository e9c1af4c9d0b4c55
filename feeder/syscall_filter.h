// syscall_filter: limits a worker process to the system calls that it needs: reading files, memory,
// futex, clock, its own threads, exit, writing to standard error, writing samples to the cache
// files opened for it, replies to its parent, and connections of producers. It denies everything else:
// other sockets, exec, new processes, opening files for writing, executable memory, duplicates of
// descriptors.
//
// It is a table and a hundred lines of classic BPF instead of libseccomp, so that the allowlist is
// in one place and no library is required. A call that is not in the table raises SIGSYS. The
// handler stores the number of the call for the parent process, and the process ends by that
// signal.
//
// Threads: install_syscall_filter() applies to every thread of the process, including those already
//          running.
// Errors:  kUnreachable: the kernel has no seccomp filters. kPermission: the kernel or an installed
//          filter (of a service manager or container) does not permit another filter. kInternal:
//          the filter is invalid, or cannot be applied to a thread of the process.
// Crash:   the filter ends with the process, which can have no children.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shared/base/status.h"

namespace stoker::feeder {

// Filter for the process `pid`, which can signal only its own threads and write to the given
// descriptors: with pwrite() to files, but not beyond their present end, with write() to the socket
// `reply_fd`. With `listening_fd`, it can accept connections there and send to sockets that are
// connected.
std::vector<sock_filter> filter_program(int pid, std::span<const int> writable_fds = {},
                                        std::optional<int> reply_fd = {},
                                        std::optional<int> listening_fd = {});

// `denied_syscall` receives the number of the call that terminated the process, plus 1 (0: none).
// It must be valid for the lifetime of the process.
Status install_syscall_filter(uint64_t& denied_syscall, std::span<const int> writable_fds = {},
                              std::optional<int> reply_fd = {},
                              std::optional<int> listening_fd = {});

}  // namespace stoker::feeder
