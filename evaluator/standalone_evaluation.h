// Evaluation of checkpoints that are named on the command line: the results go to standard output,
// and nothing else is written.
//
// Threads:  one.
// Blocking: as long as the evaluations take; a stop ends them after the batch.
// Errors:   kNotFound, kCorrupt (exit 65), kMismatch (another model), those of the configuration;
//           each names the path.
#pragma once

#include <stop_token>

#include "evaluator/command_line.h"
#include "shared/base/clock.h"
#include "shared/base/status.h"

namespace stoker::evaluator {

// Where the settings come from: --config, else the run directory's, else that of the run in which
// the (first) checkpoint lies.
Status evaluate_standalone(const CommandLine& command, Clock& clock, std::stop_token stop);

}  // namespace stoker::evaluator
