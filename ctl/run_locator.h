// Finds the run directory and the checkpoint that a command refers to.
//
// Threads: stateless functions; they access only their arguments and the file system.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"

namespace stoker::ctl {

// `run_dir` is the command line argument; if empty, the current directory is used if it is a run
// directory. kInvalidArgument: no argument, and the current directory is not a run directory.
// kNotFound: no such directory, or it contains no run. kIoError: it cannot be read.
Result<run::RunLayout> locate_run(const std::string& run_dir);

// One line without a newline: "finished at step 2 000: all steps are done".
std::string format_run_state(const run::RunState& state);

struct RunningRank {
  int rank = 0;
  std::string task;  // "ps 1 (10.0.0.6:2222)"; empty: of a group
};
// Of a run whose chief is lost, in order: the other ranks of its group, or tasks of its cluster, that still
// run. They hold the locks of their directories.
std::vector<RunningRank> find_running_ranks(const run::RunLayout& layout);

// Of a run without checkpoints: "yet", or which one was saved last and is missing now.
std::string explain_no_checkpoint(const run::RunLayout& layout);

// Not verified. Returns at least one checkpoint, otherwise kNotFound.
Result<std::vector<checkpoint::CheckpointEntry>> all_checkpoints(const run::RunLayout& layout);
// `selector`: "1200", "latest" (the newest) or "best" (the best according to the evaluator).
// kNotFound: no such checkpoint (the message lists the existing ones); kIoError, kPermission;
// kCorrupt: the evaluator's best.json.
Result<checkpoint::CheckpointEntry> select_checkpoint(const run::RunLayout& layout,
                                                      const std::string& selector);
// Whether select_checkpoint() accepts the form of `selector`.
bool is_selector(const std::string& selector);

// Total size of all files; 0 if they are not accessible.
uint64_t bytes_on_disk(const std::string& checkpoint_path);

}  // namespace stoker::ctl
