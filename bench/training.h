// Training: a model with a batch of made-up data, ready to take steps on the CPU as stokerd takes
// them.
//
// Threads: one at a time; LibTorch's own do the work.
// Errors:  create(): as model, task and optimizer. The others: kInternal: LibTorch threw.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "bench/training_setups.h"
#include "shared/base/status.h"

namespace stoker::bench {

class Training {
 public:
  // With `threads` threads of LibTorch.
  static Result<std::shared_ptr<Training>> create(const TrainingSetup& setup, int threads);
  virtual ~Training() = default;

  // Steps a second, after three that are not counted.
  virtual Result<double> run(std::chrono::nanoseconds time) = 0;
  // Which part of a step the trainer's thread spends outside LibTorch's operations: 0 to 1.
  virtual Result<double> part_outside(std::chrono::nanoseconds time) = 0;
  virtual int64_t parameters() const = 0;
};

}  // namespace stoker::bench
