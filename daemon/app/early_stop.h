// find_early_stop_request: whether the evaluator has asked for the end of this run (RUN/eval/early_stop.json), by the
// rule for early stopping that the run has now.
//
// Threads: any; reads a small file.
// Errors:  a file that is not understood is logged, and asks for nothing.
#pragma once

#include <optional>

#include "shared/config/config.h"
#include "shared/run/early_stopping.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

std::optional<run::EarlyStopRequest> find_early_stop_request(const config::EvalConfig& config,
                                                             const run::RunLayout& layout);

}  // namespace stoker::app
