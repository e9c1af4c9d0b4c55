// TrainingSetup: a model whose training steps are measured, with its batch.
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
  std::optional<config::Normalize> normalize = {};  // for images, as in the baselines
  std::vector<TensorSpec> sample;
  uint64_t classes = 0;  // 0: regression
  uint64_t batch = 1;
};

// `tiny`: the same models, small enough that a step takes milliseconds.
std::vector<TrainingSetup> training_setups(bool tiny);

// The setup of every baseline: batch and model sizes.
boost::json::object to_object(const TrainingSetup& setup);
// The setup argument of train_baseline.py, as JSON.
std::string to_json(const TrainingSetup& setup, int threads);

}  // namespace stoker::bench
