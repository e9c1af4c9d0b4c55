// SyscallFilter: the system calls that a reader process may make from now on: read files, memory,
// futex, clock, threads of its own, its end, lines to standard error, and samples to the files that
// are kept for them. Nothing else: no network, no exec, no process, no file opened for writing, no
// memory that can be executed.
//
// A table and a hundred lines of classic BPF instead of libseccomp: what is allowed is one list that
// can be read, and there is no library to ask for. A call that is not in it raises SIGSYS; the
// handler leaves the call's number where stokerd finds it, and the process ends by that signal.
//
// Threads: install() binds every thread of the process, also those that were started before.
// Errors:  kUnreachable: the kernel has no seccomp. kPermission: the kernel or a filter that is
//          already installed (of a service manager, of a container) does not permit another one.
//          kInternal: a thread of the process cannot be bound.
// Crash:   the filter ends with the process, and its children, of which it can have none.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/status.h"

namespace stoker::feeder {

// For the process `pid`; only its own threads may be signalled. It may write to these descriptors.
std::vector<sock_filter> filter_program(int pid, std::span<const int> writable_fds = {});

// `denied_syscall`: gets the number of the call that ended the process, plus 1 (0: none did); must
// be valid as long as the process lives.
Status install_syscall_filter(uint64_t& denied_syscall, std::span<const int> writable_fds = {});

}  // namespace stoker::feeder
