// Trainer: the training loop. Each iteration handles requests, then runs a step, reports and saves;
// the loop ends after the last step or on a stop. Its parts:
//
//   Commands        requests of clients, and live settings
//   Coordination    what the ranks of a group decide together
//   ParameterUpdate the gradients of a step and the update, which a StepEngine runs on the device
//   Reporter        records and status
//   Checkpointing   when and how the state is saved
//
// In a group, each rank has a trainer that computes its share of each step. Requests that concern all
// then take effect at the end of a step, on all ranks at the same one, and only the chief saves. With a
// sharded optimizer all ranks save their part: the chief announces it with the step.
//
// Threads:   run() on one thread. Other threads send requests through the mailbox and read the
//            status board.
// Blocking:  waits for batches, for requests while paused, and at the end for the last checkpoint;
//            at most 100 ms without checking the stop token. Waits for the device only before
//            saving, at the end, or when the device is two batches behind. Never for the evaluator,
//            a client or the log, and for the disk only at the end.
// Ownership: what the constructor takes by reference must outlive this object.
// Errors:    kOutOfMemory, kDeviceLost, kInternal (LibTorch's message), kCorrupt (the loss is not
//            finite, see NonfiniteGuard: nothing is saved, the last checkpoint stays valid),
//            kPeerLost, and those of the ring and the checkpoint writer.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "daemon/group/process_group.h"
#include "daemon/train/batch_source.h"
#include "daemon/train/checkpointing.h"
#include "daemon/train/commands.h"
#include "daemon/train/coordination.h"
#include "daemon/train/metrics_sink.h"
#include "daemon/train/nonfinite_guard.h"
#include "daemon/train/parameter_update.h"
#include "daemon/train/reporter.h"
#include "daemon/train/step_engine.h"
#include "daemon/train/step_instrumentation.h"
#include "daemon/train/trainer_channels.h"
#include "daemon/train/training_state.h"
#include "daemon/writer/checkpoint_writer.h"
#include "shared/base/clock.h"
#include "shared/config/config.h"
#include "shared/feed/batch_receiver.h"

namespace stoker::train {

// What a trainer starts from, in addition to the TrainingState.
struct TrainerStart {
  // Template for the manifests of this run: digests, and the parent of the next checkpoint.
  checkpoint::Manifest manifest;
  uint64_t metrics_bytes = 0;      // current length of train.jsonl
  bool save_after_resume = false;  // saves after the first step, regardless of the configuration
  // Whether the checkpoint resumed from, if any, is one of the writer's. Otherwise its step is not saved yet.
  bool is_saved = true;
  group::ProcessGroup* maybe_group = nullptr;  // that shares the steps; null: this process is alone
  bool has_device_memory = false;              // which `pause --release` can release
  OnSettingChange on_setting_change = {};      // can be empty
};

// Why Trainer::run() returned. The first four end the run in this process.
enum class TrainerOutcome {
  kFinished,
  kDataExhausted,  // a stream ended before the last step
  kStopped,
  kPreempted,          // stopped by the launcher, which starts the run again
  kRolledBack,         // nothing was saved; resume from the last checkpoint
  kNewDatasetVersion,  // the state was saved; resume from it with the new dataset version
  kNewSettings,        // the same, with other live settings, which are in the state
  kReleased,           // the state was saved; resume from it when the pause ends
};

class Trainer {
 public:
  // `config`: as configured; the live settings of the state replace some of it. `make_engine` is for
  // tests; empty: train::make_engine().
  Trainer(const config::Config& config, TrainingState& state, BatchSource& source,
          MetricsSink& sink, TrainerChannels& channels, writer::CheckpointWriter& writer,
          Clock& clock, TrainerStart start, StepEngine::Factory make_engine = {});

  // Returns after the last state is saved and durable, except after a rollback or a nonfinite loss.
  // kIoError if the state could not be saved.
  Result<TrainerOutcome> run(std::stop_token stop);

 private:
  // Maximum wait without a check of the stop token.
  static constexpr std::chrono::milliseconds kPollInterval{100};

  Result<TrainerOutcome> train(std::stop_token stop);
  Status open_engine();
  Status failed(const std::exception& error) const;

  // ---- Between steps
  void answer_requests(std::stop_token stop);
  void save_for_requests();
  Status wait_while_paused(std::stop_token stop);
  // True if the state was saved, and the run continues in another segment: with other workers or a longer ring, a new
  // dataset version, or after the pause without this trainer.
  Result<bool> save_for_new_settings();
  Result<bool> save_for_new_dataset_version();
  Result<bool> save_for_release();
  Result<bool> save_for_next_segment(const std::string& reason);

  // ---- A step
  // False if the run must end (stop or end of data); the step was then not done.
  Result<bool> do_step(std::stop_token stop);
  // nullopt: training ends here.
  Result<std::optional<feed::ReceivedBatch>> next_batch(uint64_t ticket, std::stop_token stop);

  // ---- After a step
  // False if the run must roll back.
  Result<bool> report_and_save();
  Status reduce_on_plateau();
  Status save_if_due();
  void read_steps(bool ends_interval);
  // After it the state may be saved. With a sharded optimizer all ranks must call it, unless `is_alone`.
  Result<NonfiniteAction> check_state(bool is_alone = false);
  TrainerOutcome roll_back();
  // The run continues with another trainer.
  TrainerOutcome end_segment(TrainerOutcome outcome);
  Result<TrainerOutcome> end_run(std::stop_token stop);

  config::Config config_;  // in effect; the live settings change between steps
  TrainingState& state_;
  BatchSource& source_;
  MetricsSink& sink_;
  TrainerChannels& channels_;
  writer::CheckpointWriter& writer_;
  Clock& clock_;
  const StepEngine::Factory make_engine_;  // empty: train::make_engine()
  const bool is_sharded_;                  // the optimizer
  // Before update_, which can take the gradients from the parameters.
  const std::unique_ptr<Coordination> ranks_;
  feed::BatchReceiver receiver_;
  Reporter reporter_;
  NonfiniteGuard guard_;
  StepInstrumentation instrumentation_;
  ParameterUpdate update_;
  Checkpointing checkpointing_;
  Commands commands_;
  bool has_data_ended_ = false;
  std::unique_ptr<StepEngine> engine_;  // its functions use the members above
};

}  // namespace stoker::train
