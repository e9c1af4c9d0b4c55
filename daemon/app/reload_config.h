// reload_config(): reads the configuration of a running daemon again, at SIGHUP and `reload`.
//
// Threads:  the thread of the event loop.
// Blocking: while the file is read.
// Errors:   those of config::load_config(), which are logged; the configuration is then rejected as a whole.
#pragma once

#include <string>

#include "daemon/app/command_line.h"
#include "daemon/app/run.h"
#include "shared/base/status.h"
#include "shared/config/config.h"

namespace stoker::app {

// Applies log.level, and logs every other key that differs. A level that was set during the run holds until
// that of the file changes. `now`: the configuration that the daemon was started with. In a group the chief
// changes the settings of the run. In a released pause no trainer could change them. With `is_dry_run`, nothing
// is changed or logged. Returns what differs, as JSON: {"changes":[{"key":"log.level","previous":…,"current":…,
// "effective":"now"}]}
Result<std::string> reload_config(const config::Config& now, const CommandLine& command,
                                  bool is_chief, Run& run, bool is_dry_run = false);

}  // namespace stoker::app
