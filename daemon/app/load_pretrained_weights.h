// load_pretrained_weights: model.init_from: a run that begins takes its weights from a file.
//
// What was loaded, skipped and left fresh is counted in the log; every name is in RUN/logs/pretrained_load_report.txt,
// also where the file does not fit.
//
// Threads: the trainer's thread.
// Errors:  as model::load_pretrained(); kMismatch names the report too.
#pragma once

#include "daemon/train/training_state.h"
#include "shared/base/status.h"
#include "shared/config/model_config.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

// Nothing is done where init_from is empty.
Status load_pretrained_weights(train::TrainingState& state, const config::ModelConfig& config,
                               const run::RunLayout& layout);

}  // namespace stoker::app
