// TrainedModel: a model in training mode with its task and optimizer for the training step
// benchmarks, and a batch of synthetic data for it.
//
// Errors: create(): those of model, task and optimizer; LibTorch exceptions propagate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <c10/core/Device.h>

#include "bench/training_setups.h"
#include "daemon/train/optimizer.h"
#include "shared/base/status.h"
#include "shared/model/model.h"
#include "shared/ring/batch_layout.h"
#include "shared/task/task.h"

namespace stoker::bench {

inline constexpr double kLearningRate = 3e-4;

struct TrainedModel {
  static Result<TrainedModel> create(const TrainingSetup& setup, c10::Device device,
                                     bool channels_last = false);

  int64_t parameters() const;  // number of elements in parameters and buffers

  model::ModelPtr model;
  std::unique_ptr<task::Task> task;
  std::unique_ptr<train::Optimizer> optimizer;
};

// Fills `batch`, a slot of `layout`, with integers that are valid as tokens, pixels and labels, and
// floats from -1 to 1.
void fill_batch(const TrainingSetup& setup, const ring::BatchLayout& layout,
                std::span<std::byte> batch);

}  // namespace stoker::bench
