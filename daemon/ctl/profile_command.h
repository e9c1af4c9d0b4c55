// stokerctl profile: where the time of the next steps goes.
//
// Threads:  one.
// Blocking: until stokerd has done the steps and written the trace; an hour at most.
// Errors:   the exit code; the reason is on console.err.
#pragma once

#include <string>

#include "daemon/ctl/command_line.h"
#include "daemon/ctl/console.h"
#include "shared/base/status.h"

namespace stoker::ctl {

ExitCode take_profile(const CommandLine& command, const Console& console);

// stokerd's answer as a table. kCorrupt: it is none.
Result<std::string> render_profile(const std::string& answer, const TextStyle& style);

}  // namespace stoker::ctl
