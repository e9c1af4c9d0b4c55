// TrainingSetup: the models whose steps are measured, each with the batch that it is fed.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/tensor_spec.h"
#include "shared/config/model_config.h"
#include "shared/config/task_config.h"

namespace stoker::bench {

struct TrainingSetup {
  std::string name;
  config::ModelConfig model;
  config::TaskConfig task;
  std::vector<TensorSpec> sample;
  uint64_t classes = 0;  // 0: regression
  uint64_t batch = 1;
};

// `tiny`: the same models, so small that a step takes milliseconds.
std::vector<TrainingSetup> training_setups(bool tiny);

// What train_peer.py is told, as JSON.
std::string to_json(const TrainingSetup& setup, int threads);

}  // namespace stoker::bench
