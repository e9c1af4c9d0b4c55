// BestCommand: runs the command of eval.on_best_command for a new best checkpoint.
//
// Threads:  any.
// Blocking: until the command has ended, at most `timeout`; a stop ends it, too (SIGTERM to its
//           process group, SIGKILL a moment later).
// Errors:   kNotFound (no such program), kInternal (its exit code or signal), kTimedOut, kCancelled.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <vector>

#include "shared/base/status.h"

namespace stoker::evaluator {

// `command`: a program, looked for in PATH, and its arguments; `checkpoint_path` is added. It reads
// nothing (/dev/null) and writes to this program's standard error.
Status run_best_command(const std::vector<std::string>& command, const std::string& checkpoint_path,
                        std::chrono::milliseconds timeout, std::stop_token stop);

}  // namespace stoker::evaluator
