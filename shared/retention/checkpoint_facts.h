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
#include "shared/run/backlog.h"
#include "shared/run/goal.h"
#include "shared/run/run_layout.h"

namespace stoker::retention {

struct FactsWanted {
  std::vector<run::Goal> goals;  // each makes one score
  run::BacklogRule backlog;      // says which of them wait for an evaluation
};

RetentionRule rule_of(const config::Config& config);
FactsWanted facts_wanted(const config::Config& config);

// In the order of their steps.
Result<std::vector<CheckpointFacts>> gather_facts(const checkpoint::CheckpointStore& store,
                                                  const run::RunLayout& layout,
                                                  const FactsWanted& wanted);

}  // namespace stoker::retention
