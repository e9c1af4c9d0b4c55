// TrainingState: everything that decides how training goes on: model, optimizer, generator,
// counters. What is in here is what a checkpoint holds; a run restored from it continues bit for
// bit.
//
// Threads: the trainer's thread only.
// Errors:  kMismatch: the model does not fit the data, or the checkpoint does not fit the model or
//          optimizer, with the first differences named; after a failed restore() the state is
//          unusable.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "daemon/checkpoint/snapshot.h"
#include "daemon/train/ema.h"
#include "daemon/train/live_state.h"
#include "daemon/train/loss_scale.h"
#include "daemon/train/optimizer.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/dataset/dataset.h"
#include "shared/model/model.h"
#include "shared/model/state_dict_mapping.h"
#include "shared/task/task.h"

namespace stoker::train {

class TrainingState : public LiveState {
 public:
  // Builds and initialises from config.run.seed. Where classes have balanced weights, the numbers are in
  // its task.
  static Result<std::unique_ptr<TrainingState>> create(const config::Config& config,
                                                       const dataset::Dataset& data,
                                                       c10::Device device);

  // What a run begins with, instead of random weights: as model::load_pretrained().
  Status load_pretrained(const config::PretrainedConfig& config, model::StateDictMapping& mapping);
  enum class Restored { kFully, kPartially };
  // `may_differ`: what has no counterpart of its name, shape and dtype in the checkpoint stays as it
  // was made, and is logged; otherwise it is kMismatch.
  Result<Restored> restore(const checkpoint::VerifiedCheckpoint& saved, bool may_differ = false);
  // Copies everything to the snapshot's host memory, with the manifest's fields that this class
  // knows. When it returns, training may go on.
  void capture(checkpoint::Snapshot& snapshot) const;

  // What a step changes before it is done, the gradients apart: the generators. A step that cannot
  // be finished (the feed ended inside it) is taken back.
  struct Mark {
    at::Tensor generator;
    at::Tensor of_device;  // where that is another one
  };
  Mark mark() const;
  void rewind(const Mark& mark) const;

  model::Model& model() { return *model_; }
  const task::Task& task() const { return *task_; }
  Optimizer& optimizer() { return *optimizer_; }
  LossScale* loss_scale() { return loss_scale_.get(); }  // null unless precision is fp16
  EmaWeights* ema_weights() { return ema_.get(); }       // null without train.ema_decay
  c10::Device device() const { return device_; }
  const std::string& model_digest() const { return model_digest_; }

  uint64_t step = 0;    // optimizer steps done
  uint64_t ticket = 0;  // the next micro-batch
  // Since the last reported step, without skipped ones; in the checkpoint so that a resumed run
  // reports the same numbers.
  at::Tensor loss_sum;  // F64 scalar on the device: sum of the steps' mean losses
  int64_t loss_steps = 0;

 private:
  Result<Restored> restore_model(const checkpoint::VerifiedCheckpoint& saved, bool may_differ);
  Status restore_rest(const checkpoint::SafetensorsFile& rest);
  Status restore_ema(const checkpoint::VerifiedCheckpoint& saved, bool may_differ);

  TrainingState() : device_(c10::DeviceType::CPU) {}

  c10::Device device_;
  model::ModelPtr model_;
  std::unique_ptr<task::Task> task_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LossScale> loss_scale_;
  std::unique_ptr<EmaWeights> ema_;
  at::Tensor balanced_weights_;  // F64 [classes], with task.class_weights: balanced
  std::string model_digest_;
};

}  // namespace stoker::train
