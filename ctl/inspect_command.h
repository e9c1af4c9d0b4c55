// `stokerctl inspect`: statistics of parameters, gradients, activations and inputs of a running
// training.
//
// Threads:  one.
// Blocking: until the inspection or the run ends, or the output is closed.
// Errors:   returns the exit code; the reason is written to console.err.
#pragma once

#include <chrono>

#include "ctl/command_line.h"
#include "ctl/terminal.h"

namespace stoker::ctl {

// Polls every `interval`.
ExitCode follow_inspection(const control::OpenInspection& request, const CommandLine& command,
                           const Console& console, std::chrono::milliseconds interval);

}  // namespace stoker::ctl
