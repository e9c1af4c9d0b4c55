// evaluate: asks the evaluator of a run to evaluate a checkpoint (shared/run/evaluation_requests.h).
// It needs no stokerd; a request waits for the next start of stoker-eval.
//
// Threads:  one.
// Blocking: with --wait until the evaluator has recorded the outcome; polls every `interval`.
// Errors:   returns the exit code; the reason is written to console.err.
#pragma once

#include <chrono>

#include "ctl/command_line.h"
#include "ctl/terminal.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

ExitCode evaluate(const run::RunLayout& layout, const CommandLine& command, const Console& console,
                  std::chrono::milliseconds interval);

}  // namespace stoker::ctl
