// reload_config: what SIGHUP does: reads the configuration again, takes what may change while training
// goes on (log.level), and names each other key that differs.
//
// Threads: the main thread.
// Errors:  a configuration with mistakes is logged and refused as a whole.
#pragma once

#include "daemon/app/command_line.h"
#include "shared/config/config.h"

namespace stoker::app {

// `now`: what the daemon was started with.
void reload_config(const config::Config& now, const CommandLine& command);

}  // namespace stoker::app
