// Commands that read a run directory and work without stokerd.
//
// Threads:  one.
// Blocking: file reads; `logs -f` until the run ends.
// Errors:   returns the exit code; the reason is written to console.err.
#pragma once

#include <chrono>
#include <vector>

#include "ctl/command_line.h"
#include "ctl/terminal.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

ExitCode show_list(const run::RunLayout& layout, const CommandLine& command,
                   const Console& console);
ExitCode show_verification(const run::RunLayout& layout, const CommandLine& command,
                           const Console& console);
ExitCode show_diff(const run::RunLayout& layout, const CommandLine& command,
                   const Console& console);
ExitCode write_export(const run::RunLayout& layout, const CommandLine& command,
                      const Console& console);
ExitCode show_classes(const run::RunLayout& layout, const CommandLine& command,
                      const Console& console);
// With --follow: polls every `interval`.
ExitCode show_logs(const run::RunLayout& layout, const CommandLine& command, const Console& console,
                   std::chrono::milliseconds interval);
// Of one or several runs.
ExitCode show_report(const std::vector<run::RunLayout>& runs, const CommandLine& command,
                     const Console& console);
ExitCode show_plot(const std::vector<run::RunLayout>& runs, const CommandLine& command,
                   const Console& console);
// For the completion of a shell: steps, settings or metrics of the run, one per line.
ExitCode show_candidates(const run::RunLayout& layout, const CommandLine& command,
                         const Console& console);
// CommandLine::directory
ExitCode show_runs(const CommandLine& command, const Console& console);

// That of a file that cannot be read: 65 is reserved for corrupt checkpoints, other corrupt files are
// I/O errors.
ExitCode exit_code_for_reading(const Status& status);

}  // namespace stoker::ctl
