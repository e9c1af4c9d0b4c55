// install_service: writes the units of an installation that systemd does not know: a Python environment, or a tree in a folder
// of its own. They are those of lib/systemd/system in the tree, which name another folder, or a user's.
//
// Threads:  one.
// Blocking: until `stokerd --version` has run as the user of the service, at most a minute.
// Errors:   returns the exit code; the reason is written to console.err.
// Crash:    each unit is complete or unchanged.
#pragma once

#include <string>
#include <string_view>

#include "ctl/command_line.h"
#include "ctl/terminal.h"

namespace stoker::ctl {

struct ServiceUnits {
  std::string programs;  // folder of stokerd and stoker-eval
  std::string user;      // of the system's units
  bool in_home = false;  // needs files below /home, /root or /run/user
  bool user_units = false;
};

// `unit`, with the programs, the user and the protection of `units`. A user's unit lacks what only a system's service manager
// can do, and has its configuration and runs in the user's folders.
std::string adapt_unit(std::string_view unit, const ServiceUnits& units);

ExitCode install_service(const CommandLine& command, const Console& console);

}  // namespace stoker::ctl
