// stokerctl profile: where the time of the next steps goes.
//
// Threads:  one.
// Blocking: until stokerd has done the steps and written the trace; an hour at most.
// Errors:   the exit code; the reason is on console.err.
#pragma once

#include <string>

#include "ctl/command_line.h"
#include "ctl/console.h"
#include "shared/base/status.h"

namespace stoker::ctl {

ExitCode record_profile(const CommandLine& command, const Console& console);

// stokerd's answer as a table. kCorrupt: it is none.
Result<std::string> render_profile(const std::string& answer, const TextStyle& style);

}  // namespace stoker::ctl
