// TrainingSetup: the models whose steps are measured, each with the batch that it is fed.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/json/fwd.hpp>

#include "shared/base/tensor_spec.h"
#include "shared/config/dataset_config.h"
#include "shared/config/model_config.h"
#include "shared/config/training_config.h"

namespace stoker::bench {

struct TrainingSetup {
  std::string name;
  config::ModelConfig model;
  config::TaskConfig task;
  std::optional<config::Normalize> normalize = {};  // of pictures, as the peers do it
  std::vector<TensorSpec> sample;
  uint64_t classes = 0;  // 0: regression
  uint64_t batch = 1;
};

// `tiny`: the same models, so small that a step takes milliseconds.
std::vector<TrainingSetup> training_setups(bool tiny);

// What every peer is told: the batch, and the sizes of the model.
boost::json::object to_object(const TrainingSetup& setup);
// What train_baseline.py is told, as JSON.
std::string to_json(const TrainingSetup& setup, int threads);

}  // namespace stoker::bench
