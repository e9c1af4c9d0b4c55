// The commands that ask a running stokerd.
//
// Threads:  one.
// Blocking: until stokerd has answered; `watch` until the run ends.
// Errors:   the exit code; the reason is on console.err.
#pragma once

#include <chrono>

#include "ctl/command_line.h"
#include "ctl/terminal.h"

namespace stoker::ctl {

// status
ExitCode show_status(const CommandLine& command, const Console& console);
// watch: every `interval`. The exit code of the run where it ended meanwhile.
ExitCode watch_status(const CommandLine& command, const Console& console,
                      std::chrono::milliseconds interval);
// pause, resume, checkpoint, stop, set
ExitCode control_training(const CommandLine& command, const Console& console);

// profile: where the time of the next steps goes. Waits until stokerd has done the steps and written
// the trace; an hour at most.
ExitCode record_profile(const CommandLine& command, const Console& console);

}  // namespace stoker::ctl
