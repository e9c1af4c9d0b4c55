// find_early_stop_request: the evaluator's request to stop this run (RUN/eval/early_stop.json), if
// it follows from the current early stopping rule.
//
// Threads: any; reads a small file.
// Errors:  an invalid file is logged and ignored.
#pragma once

#include <optional>

#include "shared/config/config.h"
#include "shared/run/early_stopping.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

std::optional<run::EarlyStopRequest> find_early_stop_request(const config::EvalConfig& config,
                                                             const run::RunLayout& layout);

}  // namespace stoker::app
