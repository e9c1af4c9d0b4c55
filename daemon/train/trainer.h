// Trainer: the training loop. Each iteration handles requests, then runs a step, reports and saves;
// the loop ends after the last step or on a stop.
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
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "daemon/group/process_group.h"
#include "daemon/train/batch_source.h"
#include "daemon/train/checkpointing.h"
#include "daemon/train/coordination.h"
#include "daemon/train/metrics_sink.h"
#include "daemon/train/nonfinite_guard.h"
#include "daemon/train/remaining_time.h"
#include "daemon/train/step_engine.h"
#include "daemon/train/step_instrumentation.h"
#include "daemon/train/train_step.h"
#include "daemon/train/trainer_channels.h"
#include "daemon/train/training_state.h"
#include "daemon/writer/checkpoint_writer.h"
#include "shared/base/clock.h"
#include "shared/config/config.h"
#include "shared/config/live_settings.h"
#include "shared/config/load_config.h"
#include "shared/feed/batch_receiver.h"
#include "shared/metrics/metrics_record.h"

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
  // Called after a live setting has changed, with the configuration in effect: applies what the trainer
  // does not use, and records the change. Can be empty.
  std::function<void(uint64_t step, const config::Config& config,
                     const config::SettingChange& change)>
      on_setting_change = {};
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
  // The times measured since the last reported step.
  struct Interval {
    std::chrono::nanoseconds started{0};
    std::chrono::nanoseconds waited{0};   // waiting for batches
    std::chrono::nanoseconds stalled{0};  // taking snapshots
    std::chrono::nanoseconds paused{0};
    uint64_t steps = 0;

    // Sets the time-based fields of `metrics`. `batch`: samples per step.
    void add_to(metrics::TrainMetrics& metrics, std::chrono::nanoseconds now, uint64_t batch) const;
  };

  // Maximum wait without a check of the stop token.
  static constexpr std::chrono::milliseconds kPollInterval{100};
  using nanoseconds = std::chrono::nanoseconds;

  void answer_requests(std::stop_token stop);
  void execute_commands();  // those in the mailbox
  void execute(const Request& request);
  void execute(const std::vector<Request>& agreed);
  // One for each kind of control::Command.
  void execute(const control::Pause&, const Done& done);
  void execute(const control::Resume&, const Done& done);
  void execute(const control::SaveCheckpoint&, const Done& done, const OnProgress& on_progress);
  void execute(const control::Stop&, const Done& done);
  void execute(const control::SetSetting& command, const Done& done);
  void execute(const control::UnsetSetting& command, const Done& done);
  void execute(const control::Profile& command, const Done& done, const OnProgress& on_progress);
  void execute(const control::OpenInspection& command, const Done& done);
  Status check_command(const control::Command& command) const;
  void change_settings(const std::string& key, Result<config::LiveConfig> changed, bool is_dry_run,
                       const Done& done);
  void apply_settings(config::LiveConfig changed, const config::SettingChange& change);
  // True if the state was saved and the run must continue with other workers or a longer ring.
  Result<bool> save_for_new_settings();
  Result<bool> save_for_next_segment(const std::string& reason);
  void publish_settings();  // with the next status
  Status wait_while_paused(std::stop_token stop);
  // True if the state was saved and the pause continues without this trainer.
  Result<bool> save_for_release();
  void reject_release(const Status& why);
  void save_for_requests();
  void end_requests(const Status& failure);  // replies to all, at the end of training
  Status nonfinite_state() const;            // why it is not saved
  Checkpointing::OnStall on_stall();
  Checkpointing::OnStall on_submit();
  Result<TrainerOutcome> train(std::stop_token stop);
  // False if the run must end (stop or end of data); the step was then not done.
  Result<bool> do_step(std::stop_token stop);
  Result<std::optional<feed::ReceivedBatch>> next_batch(uint64_t ticket, std::stop_token stop);
  double learning_rate() const { return learning_rate_of(config_); }
  double learning_rate_of(const config::Config& config) const;  // at the current step

  Status open_engine();
  StepObserver* observer_of(MicroBatchInfo micro_batch);
  void seed_generators(uint64_t ticket);
  void work(const task::Batch& batch, MicroBatchInfo micro_batch);
  void update();
  void update_ema();
  bool is_skipped() const;  // the step that was just finished; waits for the device
  Status failed(const std::exception& error) const;

  // False if the run must roll back.
  Result<bool> report_and_save();
  Status save_if_due();
  // Reads the device values of the steps so far. They complete and report `maybe_metrics`, now or
  // later, and set nonfinite_action_.
  void read_device_metrics(std::optional<metrics::TrainMetrics> maybe_metrics);
  // Then the state may be saved. With a sharded optimizer all ranks must call it, unless `is_alone`.
  Result<NonfiniteGuard::NonfiniteAction> read_device_metrics_blocking(bool is_alone = false);
  // Of all work so far, and of the complete state.
  enum class Checked { kByThisRank, kByAllRanks };
  Result<NonfiniteGuard::NonfiniteAction> check_state(Checked checked);
  metrics::TrainMetrics begin_metrics();
  void record_device_usage();
  group::RankReport own_report() const;
  // If it is time: into the status, and, of all ranks, into `metrics`.
  void measure_resources(nanoseconds now, metrics::TrainMetrics& metrics);
  void finish_metrics(metrics::TrainMetrics& metrics, const NonfiniteGuard::NonfiniteReport& found,
                      int64_t loss_steps);
  // True if the state was saved and the run must continue with a new dataset version.
  Result<bool> switch_dataset_version();
  TrainerOutcome roll_back();
  // The run continues with another trainer, which takes the requests that have not taken effect.
  TrainerOutcome end_segment(TrainerOutcome outcome);
  Result<TrainerOutcome> end_run(std::stop_token stop);

  control::TrainerState activity() const;
  void publish(control::TrainerState activity);

  const config::Config& configured_;
  config::Config config_;  // in effect; the live settings change between steps
  TrainingState& state_;
  BatchSource& source_;
  MetricsSink& sink_;
  TrainerChannels& channels_;
  writer::CheckpointWriter& writer_;
  Clock& clock_;
  const StepEngine::Factory make_engine_;  // empty: train::make_engine()
  const bool uses_tree_;                   // distributed.reduction: ordered
  // Before step_, which can take the gradients from the parameters.
  const std::unique_ptr<Coordination> ranks_;
  feed::BatchReceiver receiver_;

  TrainStep step_;
  NonfiniteGuard guard_;
  StepInstrumentation instrumentation_;
  Checkpointing checkpointing_;
  // The first action or error other than kContinue.
  Result<NonfiniteGuard::NonfiniteAction> nonfinite_action_ =
      NonfiniteGuard::NonfiniteAction::kContinue;
  // At the start of the step; only for functions of the engine.
  std::optional<TrainingState::Mark> step_began_;

  const decltype(TrainerStart::on_setting_change) on_setting_change_;
  const bool has_device_memory_;
  const uint64_t last_step_;  // up to which the ring has batches
  std::string segment_key_;   // live setting that the next segment has; empty: none
  bool stop_requested_ = false;
  bool is_preempted_ = false;  // by the launcher
  bool has_data_ended_ = false;
  const bool is_sharded_;  // the optimizer
  nanoseconds step_start_{0}, waited_before_step_{0};
  double step_lr_ = 0;  // of the last step
  Interval interval_;
  RemainingTime remaining_;
  cuda::DeviceUsage device_usage_;  // up to the last report
  ResourceMeter meter_;
  double measured_work_ms_ = 0;  // of the device, up to the last measurement
  nanoseconds measured_{0};
  control::TrainerStatus status_;
  std::unique_ptr<StepEngine> engine_;  // its functions use the members above
};

}  // namespace stoker::train
