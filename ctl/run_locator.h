// The run and the checkpoint that a command names.
//
// Threads: functions of their arguments and the file system.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"

namespace stoker::ctl {

// `run_dir` as given on the command line; empty: the current directory where that is a run
// directory. kInvalidArgument: nothing was given and this is none. kNotFound: there is no such
// directory, or nothing of a run is in it.
Result<run::RunLayout> locate_run(const std::string& run_dir);

// One line (without newline): "finished at step 2 000: all steps are done".
std::string format_run_state(const run::RunState& state);

// Not verified. At least one; else kNotFound.
Result<std::vector<checkpoint::CheckpointEntry>> all_checkpoints(const run::RunLayout& layout);
// `which`: "1200", "latest" (the newest), "best" (the evaluator's best so far). kNotFound: there is
// none such, and which there are; kIoError, kPermission; kCorrupt: the evaluator's best.json.
Result<checkpoint::CheckpointEntry> select_checkpoint(const run::RunLayout& layout,
                                                      const std::string& which);
// Whether `which` is of the form that select_checkpoint() takes.
bool is_selector(const std::string& which);

// Of all its files together; 0 where they cannot be seen.
uint64_t bytes_on_disk(const std::string& checkpoint_path);

}  // namespace stoker::ctl
