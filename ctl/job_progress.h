// request_job: sends a command that takes longer than a step and shows its progress in one line of a
// terminal while it waits for the end.
//
// Threads:  one.
// Blocking: as DaemonClient::request().
// Errors:   those of DaemonClient::request().
#pragma once

#include <chrono>
#include <string>

#include "ctl/daemon_client.h"
#include "ctl/terminal.h"
#include "shared/control/command.h"

namespace stoker::ctl {

// If the output is not a terminal, it only waits. `label`: "saving".
Result<std::string> request_job(DaemonClient& client, const control::Command& command,
                                const std::string& label, const Console& console,
                                std::chrono::milliseconds timeout);

}  // namespace stoker::ctl
