// reduce_learning_rate: lowers the learning rate of a run that was rolled back because of a
// nonfinite loss, once per rollback (train.rollback_lr_factor).
//
// Threads: the trainer thread.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/app/rollback.h"
#include "daemon/train/live_state.h"
#include "shared/config/config.h"

namespace stoker::app {

// `rollback`: the last one of the run; nullopt: there was none. `state`: the state in the checkpoint of
// `step`, which contains the number of rollbacks before it was saved. Unchanged if the run was not rolled back to that step.
void reduce_learning_rate(const std::optional<Rollback>& rollback,
                          const config::TrainConfig& config, uint64_t step,
                          train::LiveState& state);

}  // namespace stoker::app
