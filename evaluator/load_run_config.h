// load_run_config: the configuration of a run, which another user can have written. stoker-eval
// executes what it names (a plugin, eval.on_best_command) with the
// permissions of its user, and reads data without a sandbox if it says so.
//
// Threads: a function of its arguments and the file system.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/config.h"

namespace stoker::evaluator {

// As config::load_config(). kPermission: the file with the overrides names code or disables the
// sandbox, and belongs neither to root nor to the user of this process, or other users can write to
// it; unless `trust`.
Result<config::Config> load_run_config(const std::string& path,
                                       const std::vector<std::string>& overrides, bool trust);

}  // namespace stoker::evaluator
