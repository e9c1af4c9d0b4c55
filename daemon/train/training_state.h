// TrainingState: everything that determines how training continues: model, optimizer, generators,
// counters. A checkpoint contains exactly this state, and a run restored from it continues bit for
// bit.
//
// A step changes the trained parameters, the buffers of the model, the state of the optimizer, the loss
// scale, the moving average, the generators and the counters. What does not complete a step undoes it:
//
//   the data ends, or a stop   rewind(): buffers and generators; the rest has not changed yet
//   skipped (NonfiniteGuard)   Optimizer, EmaWeights and undo_if() leave parameters, optimizer, average and buffers
//                              as before; the step, its samples and its random numbers are consumed
//   rolled back                restore(): everything, from the last checkpoint
//
// and nothing of it that is not finite is saved: first_nonfinite().
//
// Threads: the trainer thread only.
// Errors:  kMismatch: the model does not fit the data, or the checkpoint does not fit the model or
//          optimizer; the message lists the first differences. After a failed restore() the state
//          is unusable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "daemon/train/ema.h"
#include "daemon/train/live_state.h"
#include "daemon/train/loss_scale.h"
#include "daemon/train/optimizer.h"
#include "daemon/train/step_buffers.h"
#include "daemon/writer/snapshot.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/feed/stream_state.h"
#include "shared/model/model.h"
#include "shared/pretrained/state_dict_mapping.h"
#include "shared/task/task.h"

namespace stoker::train {

// In the order of the model, which is that of the optimizer.
model::NamedTensors trained_parameters(const model::Model& model);

class TrainingState : public LiveState {
 public:
  // Builds the model and initializes it from config.run.seed. With balanced class weights, the
  // computed values must be in config.task.
  static Result<std::unique_ptr<TrainingState>> create(const config::Config& config,
                                                       const data::DatasetInfo& data,
                                                       c10::Device device,
                                                       const Optimizer::Shard& shard = {});

  // Replaces the random initial weights, see model::load_pretrained(), and model::load_adapter().
  Status load_pretrained(const config::ModelConfig& config, pretrained::StateDictMapping& mapping);
  enum class Restored { kFully, kPartially };
  // With `may_differ`, tensors without a counterpart of the same name, shape and dtype in the
  // checkpoint keep their initial values and are logged. Otherwise they are kMismatch.
  Result<Restored> restore(const checkpoint::VerifiedCheckpoint& saved, bool may_differ = false);
  // Adds the tensors to the snapshot. Copies from a device run asynchronously.
  void copy_to(writer::Snapshot& snapshot) const;
  uint64_t snapshot_bytes() const;  // that copy_to() needs
  // From now on copy_to() copies only the optimizer state, of which this rank has a part; another one
  // saves the rest.
  void save_only_optimizer() { has_model_parts_ = false; }
  // Sets the fields of the manifest that belong to this class.
  void describe(checkpoint::Manifest& manifest) const;

  // Seeds the generators for a micro-batch, with run.rng: per_ticket.
  void seed_generators(uint64_t run_seed, uint64_t of_ticket) const;

  // Without it, steps cannot be undone. Costs a copy of the buffers per step.
  void keep_undo() { buffers_->keep_copies(); }
  // At the start of a step: what undo_if() restores. Issues only device work on tensors with fixed addresses.
  void begin_step() { buffers_->copy(); }
  // After the update, if `is_undone`, a scalar on the device, is 1. Does not wait for the device.
  void undo_if(const at::Tensor& is_undone) { buffers_->restore_if(is_undone); }
  // At the start of a step, in addition to begin_step(): the generators. rewind() undoes a step before its
  // update, except for the gradients.
  struct Mark {
    at::Tensor generator;
    at::Tensor of_device;  // undefined on the CPU
  };
  Mark mark() const;
  void rewind(const Mark& mark);
  StepBuffers& buffers() { return *buffers_; }
  // The name of a tensor that training changes and that is not finite, or an empty text. Reads all of them, and
  // waits for the device.
  std::string first_nonfinite() const;

  model::Model& model() { return *model_; }
  const task::Task& task() const { return *task_; }
  // See Task::training_metrics().
  const std::vector<std::string>& training_metrics() const { return training_metrics_; }
  Optimizer& optimizer() { return *optimizer_; }
  LossScale* loss_scale() { return loss_scale_.get(); }  // null unless precision is fp16
  EmaWeights* ema_weights() { return ema_.get(); }       // null without train.ema_decay
  c10::Device device() const { return device_; }
  const std::string& model_digest() const { return model_digest_; }

  uint64_t step = 0;    // completed optimizer steps
  uint64_t ticket = 0;  // the next micro-batch to train on
  // Of a stream, after the ticket before; nullopt: its start, or the data is no stream.
  std::optional<feed::StreamState> stream;
  std::optional<feed::StreamHistory> stream_history;  // set by restore()
  // Since the last reported step, without skipped steps. Part of the checkpoint, so that a resumed
  // run reports the same values. F64 on the device.
  at::Tensor loss_sum;                  // of the steps' mean losses; a scalar
  at::Tensor metric_sum, metric_count;  // of training_metrics(), [metrics]; undefined without any
  int64_t loss_steps = 0;
  // model.unfreeze_at_step: whether the next step, as `step` says, freezes or unfreezes parameters,
  // and doing so, with no work pending.
  bool changes_frozen() const;
  void update_frozen();
  // Zeroes these tensors. Call when they are reported, and set loss_steps to 0.
  void reset_interval();

 private:
  bool must_be_frozen() const;  // in the next step
  Result<Restored> restore_model(const checkpoint::VerifiedCheckpoint& saved, bool may_differ);
  Status restore_rest(const checkpoint::SafetensorsFile& rest);
  Status restore_metrics(const checkpoint::SafetensorsFile& rest);
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const;  // of a snapshot
  Status restore_ema(const checkpoint::VerifiedCheckpoint& saved, bool may_differ);

  TrainingState() : device_(c10::DeviceType::CPU) {}

  c10::Device device_;
  model::ModelPtr model_;
  std::unique_ptr<task::Task> task_;
  std::vector<std::string> training_metrics_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LossScale> loss_scale_;
  std::unique_ptr<EmaWeights> ema_;
  bool monitors_training_loss_ = false;  // reduce_on_plateau
  std::unique_ptr<StepBuffers> buffers_;
  at::Tensor balanced_weights_;  // F64 [classes], with task.class_weights: balanced
  std::string model_digest_;
  std::optional<uint64_t> unfreeze_at_step_;
  bool has_model_parts_ = true;  // of a snapshot
};

// The learning rate of the next step, with the configuration in effect.
double learning_rate(const config::Config& config, const TrainingState& state);

// kCorrupt, what is not finite at which step, and what to try. `after`: follows the step.
Status nonfinite_error(const std::string& found, uint64_t step, const std::string& after = {});

}  // namespace stoker::train
