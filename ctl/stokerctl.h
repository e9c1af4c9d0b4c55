// stokerctl: the hand on the controls of stokerd.
//
// Threads: one.
// Errors:  the exit code; the reason is on `err` in one line.
#pragma once

#include <iosfwd>

#include "ctl/terminal.h"
#include "shared/base/status.h"

namespace stoker::ctl {

// The whole program.
ExitCode run_stokerctl(int argc, const char* const* argv, const TextStyle& style, std::ostream& out,
                       std::ostream& err);

}  // namespace stoker::ctl
