// stokerctl inspect: statistics of parameters, gradients and activations, while training runs.
//
// Threads:  one.
// Blocking: until the tap has ended, the run has, or nobody reads what is written.
// Errors:   the exit code; the reason is on console.err.
#pragma once

#include <chrono>

#include "ctl/command_line.h"
#include "ctl/terminal.h"

namespace stoker::ctl {

// Fetches every `interval`.
ExitCode follow_inspection(const CommandLine& command, const Console& console,
                           std::chrono::milliseconds interval);

}  // namespace stoker::ctl
