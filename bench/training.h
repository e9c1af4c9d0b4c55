// Training: one of two models with a batch of made-up data, ready to take steps on the CPU as
// stokerd takes them.
//
// Threads: one at a time; LibTorch's own do the work.
// Errors:  create(): as model, task and optimizer. run(): kInternal: LibTorch threw.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/model_config.h"
#include "shared/config/task_config.h"

namespace stoker::bench {

struct TrainingSetup {
  config::ModelConfig model;
  config::TaskConfig task;
  std::vector<TensorSpec> sample;
  uint64_t classes = 0;
  uint64_t batch = 1;
};

TrainingSetup gpt_setup(bool tiny);
TrainingSetup lenet_setup(bool tiny);

class Training {
 public:
  static Result<std::shared_ptr<Training>> create(const TrainingSetup& setup);
  virtual ~Training() = default;

  // Steps a second, after three that are not counted.
  virtual Result<double> run(std::chrono::nanoseconds time) = 0;
  virtual int64_t parameters() const = 0;
};

int training_threads();  // what LibTorch works with

}  // namespace stoker::bench
