// stokerctl: the command line client that controls and inspects runs of stokerd.
//
// Threads: one.
// Errors:  returns the exit code; the reason is written to `err` in one line.
#pragma once

#include <iosfwd>

#include "ctl/terminal.h"
#include "shared/base/status.h"

namespace stoker::ctl {

// Parses the command line and runs the command.
ExitCode run_stokerctl(int argc, const char* const* argv, const TextStyle& style, std::ostream& out,
                       std::ostream& err);

}  // namespace stoker::ctl
