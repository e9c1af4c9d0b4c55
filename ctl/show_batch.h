// show-batch: lists the samples that a step trains on, from the run directory or from stokerd.
//
// Threads:  one.
// Blocking: file reads and a worker process; show_remote_batch() until stokerd has replied.
// Errors:   returns the exit code; the reason is written to console.err.
#pragma once

#include <string>

#include "ctl/command_line.h"
#include "ctl/terminal.h"
#include "shared/batch/batch_description.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

ExitCode show_batch(const run::RunLayout& layout, const CommandLine& command,
                    const Console& console);
// `show-batch --socket`: one request after another until it has all samples.
ExitCode show_remote_batch(const CommandLine& command, const Console& console);

std::string render_batch(const batch::BatchDescription& description, const TextStyle& style);

}  // namespace stoker::ctl
