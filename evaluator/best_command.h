// run_best_command: runs the command of eval.on_best_command for a new best checkpoint.
//
// Threads:  any.
// Blocking: until the command exits, at most `timeout`. On timeout and on `stop`, its process group
//           receives SIGTERM, then SIGKILL 2 s later.
// Errors:   kNotFound (no such program), kInternal (nonzero exit code or a signal), kTimedOut,
//           kCancelled.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <vector>

#include "shared/base/status.h"

namespace stoker::evaluator {

// `command` is a program, searched in PATH, and its arguments; `checkpoint_path` is appended to
// them. Its standard input is /dev/null, its output goes to the standard error of this process.
Status run_best_command(const std::vector<std::string>& command, const std::string& checkpoint_path,
                        std::chrono::milliseconds timeout, std::stop_token stop);

}  // namespace stoker::evaluator
