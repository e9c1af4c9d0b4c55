// Which checkpoint a command means: "1200", "latest" (the newest), "best" (the evaluator's best so
// far).
//
// Threads: functions of their arguments and the file system.
// Errors:  kNotFound: there is none such, and which there are; kIoError, kPermission; kCorrupt: the
//          evaluator's best.json.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

// Not verified. At least one.
Result<std::vector<checkpoint::CheckpointEntry>> all_checkpoints(const run::RunLayout& layout);
Result<checkpoint::CheckpointEntry> select_checkpoint(const run::RunLayout& layout,
                                                      const std::string& which);
// Whether `which` is of the form that select_checkpoint() takes.
bool is_selector(const std::string& which);

// Of all its files together; 0 where they cannot be seen.
uint64_t bytes_on_disk(const std::string& checkpoint_path);

}  // namespace stoker::ctl
