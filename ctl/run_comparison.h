// render_comparison: a table of several runs, with the settings that differ, the best value of their metric and its step;
// the best run first. The page shows the same (page.js).
//
// Threads: stateless functions; they access only their arguments and the file system.
// Errors:  of a file that is malformed; a run without records or evaluations has no value.
#pragma once

#include <string>
#include <vector>

#include "ctl/terminal.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

Result<std::string> render_comparison(const std::vector<run::RunLayout>& runs,
                                      const TextStyle& style);

}  // namespace stoker::ctl
