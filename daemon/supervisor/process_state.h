// process_state: what /proc says of a process, for people who want to know why it hangs.
//
// Threads: any.
// Errors:  none: an empty text, or no time, where the process is gone.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace stoker::supervisor {

// "stopped", "running", "in uninterruptible sleep (D) in nfs_wait_bit_killable", ….
std::string process_state(pid_t pid);
// The same of one thread, from the text of its stat and wchan in /proc.
std::string describe_process_state(const std::string& stat, const std::string& wait_channel);

// Of all its threads, ever.
std::chrono::nanoseconds cpu_time(pid_t pid);

}  // namespace stoker::supervisor
