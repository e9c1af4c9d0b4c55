// run_program: runs a program of the user and waits for it.
//
// Threads:  any.
// Blocking: until the program exits, at most `timeout`. On timeout and on `stop`, its process group
//           receives SIGTERM, then SIGKILL 2 s later.
// Errors:   kNotFound (no such program), kInternal (nonzero exit code or a signal), kTimedOut,
//           kCancelled, kIoError. The message starts with the program.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"

namespace stoker {

// `command` is a program, searched in PATH, and its arguments; there is no shell. `input` is its
// standard input, which does not depend on whether the program reads it. Its output goes to the
// standard error of this process.
Status run_program(const std::vector<std::string>& command, std::string_view input,
                   std::chrono::milliseconds timeout, const std::stop_token& stop);

// The path of a program that is installed with this one: next to it, or in ../libexec/stoker or
// ../libexec. kNotFound: it is in none of them.
Result<std::string> find_installed_program(const std::string& name);

}  // namespace stoker
