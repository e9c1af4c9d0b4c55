// reload_config: handles SIGHUP. Reads the configuration again, applies what can change during
// training (log.level), and logs every other key that differs.
//
// Threads: the main thread.
// Errors:  an invalid configuration is logged and rejected as a whole.
#pragma once

#include "daemon/app/command_line.h"
#include "shared/config/config.h"

namespace stoker::app {

// `now`: the configuration that the daemon was started with.
void reload_config(const config::Config& now, const CommandLine& command);

}  // namespace stoker::app
