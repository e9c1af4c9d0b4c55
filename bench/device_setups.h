// DeviceSetup: the models whose steps are measured on a device, each with its batch and precision.
//
// Threads: values.
#pragma once

#include <string>
#include <vector>

#include "bench/training_setups.h"
#include "shared/config/training_config.h"

namespace stoker::bench {

struct DeviceSetup {
  TrainingSetup training;
  config::TrainConfig train;  // device, precision, channels_last
  std::string unit;           // what is counted: tokens, images, samples
  uint64_t units = 1;         // of them in a batch
};

// `tiny`: the same models, so small that a step takes milliseconds on a CPU.
std::vector<DeviceSetup> device_setups(bool tiny, const std::string& device);

// "bf16": the word of train.precision.
std::string name_of(config::Precision precision);
// What device_baseline.py is told, as JSON.
std::string to_json(const DeviceSetup& setup);

}  // namespace stoker::bench
