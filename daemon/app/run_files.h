// Requests of clients about files of the run directory, so that a client needs no access to it.
//
// Threads:  functions of their arguments and the file system; called on the control server's thread
//           for files.
// Blocking: reads and writes files; ShowBatch also waits for a worker process.
// Errors:   kNotFound: no such checkpoint or log; kIoError, kNoSpace, kPermission; those of
//           describe_batch().
#pragma once

#include <stop_token>
#include <string>

#include "shared/base/clock.h"
#include "shared/base/status.h"
#include "shared/control/command.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

// Returns a JSON object on one line.
Result<std::string> execute_file_request(const run::RunLayout& layout, Clock& clock,
                                         const control::FileRequest& request,
                                         const std::stop_token& stop);

}  // namespace stoker::app
