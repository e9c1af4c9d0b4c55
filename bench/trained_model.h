// TrainedModel: what the benchmarks of training steps train: a model in training mode, its task and
// its optimizer; and a batch of made-up data for it.
//
// Errors: create(): as model, task and optimizer; LibTorch's exceptions pass through.
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

  int64_t parameters() const;  // numbers of the model's parameters and buffers

  model::ModelPtr model;
  std::unique_ptr<task::Task> task;
  std::unique_ptr<train::Optimizer> optimizer;
};

// Whole numbers that are good as tokens, as pixels and as labels; floats from -1 to 1. `batch` is as
// long as a slot of `layout`.
void fill_batch(const TrainingSetup& setup, const ring::BatchLayout& layout,
                std::span<std::byte> batch);

}  // namespace stoker::bench
