// DeviceSetup: a model whose training steps are measured on a device, with its batch and precision.
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
  uint64_t units = 1;         // per batch
  // Parameters of embeddings, which are looked up and take part in no matrix product.
  int64_t embedding_parameters = 0;
};

// `tiny`: the same models, small enough that a step takes milliseconds on a CPU.
std::vector<DeviceSetup> device_setups(bool tiny, const config::DeviceConfig& device,
                                       const config::FusedKernelsConfig& fused_kernels);

// The setup argument of device_baseline.py, as JSON.
std::string to_json(const DeviceSetup& setup);

}  // namespace stoker::bench
