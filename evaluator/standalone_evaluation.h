// evaluate_standalone: evaluates the checkpoints given on the command line, prints the results to
// standard output and writes nothing else.
//
// Threads:  one.
// Blocking: as long as the evaluations take; a stop ends them after the current batch.
// Errors:   kNotFound, kCorrupt (exit code 65), kMismatch (another model), configuration errors;
//           the message contains the path.
#pragma once

#include <stop_token>

#include "evaluator/command_line.h"
#include "shared/base/clock.h"
#include "shared/base/status.h"

namespace stoker::evaluator {

// The configuration is that of --config, else of --run-dir, else of the run that contains the first
// checkpoint.
Status evaluate_standalone(const CommandLine& command, Clock& clock, std::stop_token stop);

}  // namespace stoker::evaluator
