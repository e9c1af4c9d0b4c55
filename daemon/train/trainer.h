// Trainer: the loop: requests, batch, step, report, checkpoint; until the last step or a stop.
//
// Threads:  run() on one thread; everything else reaches it through the mailbox and leaves it
//           through the status board.
// Blocking: waits for batches, for requests while paused, and at the end for the last checkpoint;
//           at most 100 ms without looking at the stop token. For the device only to save, at the
//           end, or where it is two batches behind. Never for the evaluator, a client, the log or
//           (but at the end) the disk.
// Owner:    everything in TrainerDependencies must outlive it.
// Errors:   kOutOfMemory, kDeviceLost, kInternal (LibTorch's text), kCorrupt (the loss is not a
//           number, see NonfiniteGuard: nothing is saved, the last checkpoint stays), and the ring's
//           and writer's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "daemon/checkpoint/checkpoint_writer.h"
#include "daemon/train/interval.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/nonfinite_guard.h"
#include "daemon/train/save_triggers.h"
#include "daemon/train/status_board.h"
#include "daemon/train/step_engine.h"
#include "daemon/train/step_instrumentation.h"
#include "daemon/train/train_step.h"
#include "daemon/train/training_state.h"
#include "shared/base/clock.h"
#include "shared/config/config.h"
#include "shared/dataset/sample_plan.h"
#include "shared/feed/batch_shapes.h"
#include "shared/metrics/train_metrics.h"
#include "shared/ring/shm_ring.h"

namespace stoker::train {

struct TrainerDependencies {
  ring::ShmRing& ring;
  const dataset::SamplePlan& plan;
  checkpoint::CheckpointWriter& writer;
  Mailbox& mailbox;
  StatusBoard& board;
  Clock& clock;
  // Takes a reported row without waiting; returns the length of train.jsonl with it, for the
  // manifest.
  std::function<uint64_t(const metrics::TrainMetrics&)> report;
  // The samples that the readers have put into quarantine so far.
  std::function<std::vector<uint64_t>()> quarantined;
  // The manifest's fields that this run shares: digests, parent.
  checkpoint::Manifest manifest;
  uint64_t metrics_bytes = 0;         // of train.jsonl now
  bool save_after_resume = false;     // the first step is saved, whatever the settings say
  InspectionDependencies watch = {};  // empty: nobody may look inside
  // Whether other data is to be trained on from this ticket on.
  std::function<bool(uint64_t ticket)> is_new_data = [](uint64_t) { return false; };
  // Where the steps are done; make_engine() decides where it is empty.
  std::function<Result<std::unique_ptr<StepEngine>>(StepEngine::Calls)> make_engine = {};
  // Of batches that differ; nothing: all are as the ring's layout.
  std::optional<feed::BatchShapes> maybe_shapes = std::nullopt;
  // Is shown the first batch of a run that begins, before it is trained on; empty: nobody is.
  std::function<void(const ring::ReadyBatch&)> on_first_batch = {};
  // Whether a batch may be trained on; empty: all may. One that may not ends training as the end of
  // the data does: what was learned is saved. Whoever says so keeps the reason.
  std::function<bool(const ring::ReadyBatch&)> is_valid_batch = {};
  // Samples of the tickets before this one that could not be read, for a checkpoint; empty: it does not
  // say.
  std::function<uint64_t(uint64_t ticket)> sample_errors_before = {};
};

class Trainer {
 public:
  enum class Outcome {
    kFinished,
    kStopped,
    kRolledBack,  // the state is spoiled: go on from the last checkpoint; nothing was saved
    kNewData,     // the state is saved: go on from it with other data
  };

  Trainer(const config::Config& config, TrainingState& state, TrainerDependencies dependencies);

  // Ends with the last state saved and acknowledged (on_write_error: retry: or its loss logged).
  Result<Outcome> run(std::stop_token stop);

 private:
  void answer_requests(std::stop_token stop);
  void handle(Request& request);
  void wait_while_paused(std::stop_token stop);
  void save_for_requests();
  void reject_saving(const Status& why);  // to those that wait for a checkpoint
  // False when the run must end (stop, end of data); the step is then not done.
  Result<bool> do_step(std::stop_token stop);
  Result<std::optional<ring::ReadyBatch>> next_batch(std::stop_token stop);
  double learning_rate() const;

  Status open_engine();
  void work(const task::Batch& batch, MicroBatchInfo micro_batch);
  Status failed(const std::exception& error) const;

  // False when the run must roll back.
  Result<bool> report_and_save();
  Status save_if_due();
  // Reads what the device knows of the steps so far; a row is completed by it and reported, now or
  // later. What it says of the run is in verdict_.
  void read_device_metrics(std::optional<metrics::TrainMetrics> maybe_metrics);
  Result<NonfiniteGuard::NonfiniteAction> read_device_metrics_blocking();
  metrics::TrainMetrics begin_metrics();
  void record_device_usage();  // of the device, in status_
  void finish_metrics(metrics::TrainMetrics& metrics, const NonfiniteGuard::NonfiniteReport& found,
                      int64_t loss_steps);
  SaveReason save_due();
  void save_if_triggered(SaveReason reason);
  Status check_saving() const;  // on_write_error: fail
  // Snapshots and submits; false when one is still in flight.
  bool try_save();
  void fill(checkpoint::Snapshot& snapshot);
  // Whether the run leaves here for other data, its state saved.
  Result<bool> switch_dataset_version();
  Result<Outcome> end_run(std::stop_token stop);
  Status save_last(bool hurried);

  control::TrainerState activity() const;
  void publish(control::TrainerState activity);

  const config::Config& config_;
  TrainingState& state_;
  TrainerDependencies dependencies_;
  TrainStep step_;
  NonfiniteGuard guard_;
  SaveTriggers triggers_;
  StepInstrumentation instrumentation_;
  Result<NonfiniteGuard::NonfiniteAction> nonfinite_action_ =
      NonfiniteGuard::NonfiniteAction::kContinue;  // the first that is not fine
  std::unique_ptr<StepEngine> engine_;             // its work is done by the members above

  bool stop_requested_ = false;
  bool paused_ = false;
  std::vector<Request>
      save_requests_;  // `checkpoint` commands that wait for the next free snapshot
  std::optional<uint64_t>
      maybe_submitted_step_;  // of the last snapshot handed over, or resumed from
  bool is_skip_logged_ = false;
  Interval interval_;
  cuda::DeviceUsage device_usage_;  // until the last row
  control::TrainerStatus status_;
};

}  // namespace stoker::train
