// Descriptor limit: how many files and sockets this process may have open (RLIMIT_NOFILE). The soft limit is
// 1024 on most systems for the sake of programs that use select(), which none of stoker's does; the hard
// limit is far higher. As systemd advises, a program raises its own soft limit and gives the former one to
// programs that it starts and did not write.
//
// Threads:  any; raise_descriptor_limit() once, before there are others.
// Blocking: never.
// Errors:   none: then the limit stays as it is.
#pragma once

#include <sys/types.h>

namespace stoker {

// To the hard limit.
void raise_descriptor_limit();

// Sets the soft limit of a child process to the one that this process was started with, unless it was not
// raised.
void restore_descriptor_limit(pid_t child);

}  // namespace stoker
