// What retention goes by, of a run: its settings, and what its directory says of each checkpoint
// (manifest, the evaluator's results, ledger and best).
//
// Threads: any; no state.
// Errors:  kIoError, kPermission: the checkpoints cannot be listed, or the ledger not be read. What
//          cannot be read of one checkpoint is not known of it, which never makes it go sooner.
#pragma once

#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/retention/retention.h"
#include "shared/run/evaluation_queue.h"
#include "shared/run/monitor.h"
#include "shared/run/run_layout.h"

namespace stoker::retention {

struct RequiredInfo {
  std::vector<run::Monitor> monitors;  // each makes one score
  run::SelectionPolicy selection;      // says which of them wait for an evaluation
};

RetentionPolicy make_retention_policy(const config::Config& config);
RequiredInfo required_info(const config::Config& config);

// In the order of their steps.
Result<std::vector<CheckpointInfo>> collect_checkpoint_info(
    const checkpoint::CheckpointStore& store, const run::RunLayout& layout,
    const RequiredInfo& required);

}  // namespace stoker::retention
