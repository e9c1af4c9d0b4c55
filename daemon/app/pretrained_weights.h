// The pretrained weights of a run (model.pretrained).
//
// Threads:  the trainer thread.
// Blocking: while the files are read.
// Errors:   load_pretrained_weights(): as model::load_pretrained(); the message of kMismatch has the path
//           of the report. warn_of_other_normalization(): the file of the normalization is invalid.
#pragma once

#include "daemon/train/training_state.h"
#include "shared/base/status.h"
#include "shared/checkpoint/manifest.h"
#include "shared/config/config.h"
#include "shared/model/model.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

// Initializes the model from a file, if the configuration has one. The numbers of loaded, unexpected and
// missing tensors are logged. Their names are in RUN/logs/pretrained_load_report.txt, even if the file
// does not match the model.
Status load_pretrained_weights(train::TrainingState& state, const config::ModelConfig& config,
                               const run::RunLayout& layout);

// Logs a warning if the folder of the weights has another normalization than data.train: inputs of another
// mean and std make a run worse without an error.
Status warn_of_other_normalization(const config::Config& config);

// With model.lora, checkpoints are without the pretrained weights: adds their path and digest.
void record_base_weights(const config::ModelConfig& config, const model::Model& model,
                         checkpoint::Manifest& manifest);

}  // namespace stoker::app
