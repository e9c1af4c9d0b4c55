// load_pretrained_weights: initializes the model of a new run from a file (model.pretrained).
//
// The numbers of loaded, unexpected and missing tensors are logged. Their names are in
// RUN/logs/pretrained_load_report.txt, even if the file does not match the model.
//
// Threads: the trainer thread.
// Errors:  as model::load_pretrained(); the message of kMismatch contains the path of the report.
#pragma once

#include "daemon/train/training_state.h"
#include "shared/base/status.h"
#include "shared/config/model_config.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

// Does nothing if the configuration has no pretrained weights.
Status load_pretrained_weights(train::TrainingState& state, const config::ModelConfig& config,
                               const run::RunLayout& layout);

}  // namespace stoker::app
