// Stack traces: the stacks of all threads of this process and of its child processes, for the reader
// of a log.
//
// Threads:  any, but one call at a time.
// Blocking: at most as long as the functions say, whatever the file system and the processes do.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "shared/base/status.h"

namespace stoker::service {

struct StackTraces {
  std::string text;                  // at most 16 MiB
  std::vector<std::string> missing;  // what could not be read, and why
};

// Runs `program`, stoker-stacks, for this process and returns what it has printed until its end, or
// until `timeout`. kNotFound, kIoError: it cannot be started.
Result<StackTraces> collect_stack_traces(const std::string& program,
                                         std::chrono::milliseconds timeout);
// kTimedOut: the write continues on a separate thread, which this process cannot stop.
Status save_stack_traces(const std::string& path, std::string text,
                         std::chrono::milliseconds timeout);

}  // namespace stoker::service
