// check_data: opens all datasets of a configuration as a run would, and tells what they contain
// (stokerd --check-data).
//
// The indexes are those of the run directory if a run of this user has made some and no process uses
// it; otherwise they are temporary. Nothing else is written. A stream is not opened, because its
// records can be read only once.
//
// Threads:  the main thread. SIGINT and SIGTERM end the process after the temporary files are
//           removed.
// Blocking: for the disk; indexing can take hours.
// Errors:   printed, one line each; the exit code is that of the first one.
#pragma once

#include <iosfwd>

#include "shared/base/clock.h"
#include "shared/base/status.h"
#include "shared/config/config.h"

namespace stoker::app {

// `results`: one line per dataset, and one for settings in epochs, which are resolved in `config` for a new run.
ExitCode check_data(config::Config& config, Clock& clock, std::ostream& results);

}  // namespace stoker::app
