// Commands that send requests to a running stokerd.
//
// Threads:  one.
// Blocking: until stokerd has answered; `watch` until the run ends.
// Errors:   returns the exit code; the reason is written to console.err.
#pragma once

#include <chrono>

#include "ctl/command_line.h"
#include "ctl/terminal.h"

namespace stoker::ctl {

// status
ExitCode show_status(const CommandLine& command, const Console& console);
// watch: prints a line every `interval`. Returns the exit code of the run if the run ends meanwhile.
ExitCode watch_status(const CommandLine& command, const Console& console,
                      std::chrono::milliseconds interval);
// threads: a row for each thread, and their number
ExitCode show_threads(const CommandLine& command, const Console& console);
// get: settings with their values and origins
ExitCode show_settings(const CommandLine& command, const Console& console);
// reload: the daemon reads its configuration again
ExitCode reload_configuration(const CommandLine& command, const Console& console);
// pause, resume, checkpoint, stop, set, unset, profile, inspect: CommandLine::request
ExitCode run_command(const CommandLine& command, const Console& console);

// profile: records where the next steps spend their time. Waits until stokerd has executed the
// steps and written the trace, at most one hour.
ExitCode record_profile(const control::Profile& request, const CommandLine& command,
                        const Console& console);

}  // namespace stoker::ctl
