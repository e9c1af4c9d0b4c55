// reduce_learning_rate: what a run changes that was sent back to a checkpoint because its loss was no
// number: the learning rate, once for each time (train.rollback_lr_factor).
//
// Threads: the trainer's thread.
// Errors:  kCorrupt, kIoError: of RUN/rollback.json.
#pragma once

#include <string>

#include "daemon/train/live_state.h"
#include "shared/base/status.h"
#include "shared/config/config.h"

namespace stoker::app {

// `state`: as the checkpoint of `step` has it, which knows how often the run had gone back when it was
// saved. Where the run did not go back to that step, nothing is changed.
Status reduce_learning_rate(const std::string& rollback_file, const config::TrainConfig& config,
                            uint64_t step, train::LiveState& state);

}  // namespace stoker::app
