// Training: trains a model on a batch of synthetic data on the CPU, with the step code of stokerd.
//
// Threads: one at a time; the work runs on LibTorch's threads.
// Errors:  create(): those of model, task and optimizer. Other methods: kInternal: a LibTorch
//          exception.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "bench/training_setups.h"
#include "shared/base/status.h"

namespace stoker::bench {

class Training {
 public:
  // `threads`: number of LibTorch threads.
  static Result<std::shared_ptr<Training>> create(const TrainingSetup& setup, int threads);
  virtual ~Training() = default;

  // Steps per second, after three warm-up steps.
  virtual Result<double> run(std::chrono::nanoseconds time) = 0;
  // Fraction of a step that the trainer thread spends outside LibTorch operations, 0 to 1.
  virtual Result<double> fraction_outside_operations(std::chrono::nanoseconds time) = 0;
  virtual int64_t parameters() const = 0;
};

}  // namespace stoker::bench
