// top: the live screen of a run.
//
// Threads:  one.
// Blocking: until the run ends, q, or a signal; a request to stokerd at most 5 seconds. If stokerd
//           does not answer while the run continues, the screen shows why, and it tries again once a
//           second, 60 times.
// Errors:   returns the exit code; the reason is written to console.err after the terminal is
//           restored.
#pragma once

#include "ctl/command_line.h"
#include "ctl/terminal.h"

namespace stoker::ctl {

// Without a terminal that can move the cursor: as `watch`.
ExitCode show_top(const CommandLine& command, const Console& console);

}  // namespace stoker::ctl
