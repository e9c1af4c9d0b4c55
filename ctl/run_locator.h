// RunPlace: which run a command is about, and where its control socket is.
//
// Threads: values; functions of their arguments and the file system.
#pragma once

#include <string>

#include "shared/base/status.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"

namespace stoker::ctl {

// `run_dir` as given on the command line; empty: the current directory where that is a run
// directory. kInvalidArgument: nothing was given and this is none. kNotFound: there is no such
// directory, or nothing of a run is in it.
Result<run::RunLayout> locate_run(const std::string& run_dir);

// One line (without newline): "finished at step 2 000: all steps are done".
std::string format_run_state(const run::RunState& state);

}  // namespace stoker::ctl
