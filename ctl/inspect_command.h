// stokerctl inspect: statistics of parameters, gradients and activations, while training runs.
//
// Threads:  one.
// Blocking: until the tap has ended, the run has, or nobody reads what is written.
// Errors:   the exit code; the reason is on console.err.
#pragma once

#include <chrono>
#include <string>

#include "ctl/command_line.h"
#include "ctl/console.h"
#include "shared/base/status.h"

namespace stoker::ctl {

// Fetches every `interval`.
ExitCode follow_inspection(const CommandLine& command, const Console& console,
                           std::chrono::milliseconds interval);

// A row of a tap as a table, or as a line for each tensor. kCorrupt: it is none.
Result<std::string> render_inspection_table(const std::string& row, const TextStyle& style);
Result<std::string> render_inspection_lines(const std::string& row);

}  // namespace stoker::ctl
