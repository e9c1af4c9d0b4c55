// reduce_learning_rate: lowers the learning rate of a run that was rolled back because of a
// nonfinite loss, once per rollback (train.rollback_lr_factor).
//
// Threads: the trainer thread.
// Errors:  kCorrupt, kIoError from RUN/rollback.json.
#pragma once

#include <string>

#include "daemon/train/live_state.h"
#include "shared/base/status.h"
#include "shared/config/config.h"

namespace stoker::app {

// `state`: the state in the checkpoint of `step`, which contains the number of rollbacks before it
// was saved. Unchanged if the run was not rolled back to that step.
Status reduce_learning_rate(const std::string& rollback_file, const config::TrainConfig& config,
                            uint64_t step, train::LiveState& state);

}  // namespace stoker::app
