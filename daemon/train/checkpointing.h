// Checkpointing: when the trainer takes a checkpoint, and how: what is due by steps, time or loss, or was requested, becomes a
// snapshot, which the writer commits.
//
// Threads:   the trainer thread only.
// Blocking:  save() of an announced one, save_last() and wait_for_writer() for the disk; try_save() for the device.
// Ownership: what the constructor takes by reference must outlive this object.
// Errors:    check(): kIoError with checkpoint.on_write_error: fail, kPeerLost: this process is no part of its group any more.
//            save_last(): these, if the last state is not durable.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/train/batch_source.h"
#include "daemon/train/coordination.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/reporter.h"
#include "daemon/train/save_triggers.h"
#include "daemon/train/status_board.h"
#include "daemon/train/step_engine.h"
#include "daemon/train/step_instrumentation.h"
#include "daemon/train/training_state.h"
#include "daemon/writer/checkpoint_writer.h"
#include "shared/base/clock.h"
#include "shared/base/status.h"
#include "shared/checkpoint/manifest.h"
#include "shared/config/config.h"

namespace stoker::train {

class Checkpointing {
 public:
  struct Start {
    checkpoint::Manifest manifest;   // template for those of this run
    uint64_t metrics_bytes = 0;      // length of train.jsonl
    bool save_after_resume = false;  // see TrainerStart
    bool is_saved = false;           // the current step is that of a checkpoint of the writer
  };
  Checkpointing(const config::Config& config, TrainingState& state, BatchSource& source,
                Coordination& ranks, Reporter& reporter, StepInstrumentation& instrumentation,
                writer::CheckpointWriter& writer, StatusBoard& board, Clock& clock, Start start);

  // Before the first step.
  void start(std::chrono::nanoseconds now);
  // Whether this process takes snapshots: the chief, with a sharded optimizer all.
  bool has_snapshots() const { return ranks_.is_chief() || is_sharded_; }
  // Length of train.jsonl, for the manifest.
  void set_metrics_bytes(uint64_t bytes) { metrics_bytes_ = bytes; }

  // ---- Requests, which are answered when the next checkpoint is durable
  void request(const Done& done, const OnProgress& on_progress);
  bool has_requests() const { return !requests_.empty(); }
  void reject_requests(const Status& why);

  // ---- Saves
  SaveReason due();
  // Whether all processes save `step`, which is about to be completed, or is the current one of a pause. Only
  // on the chief of a sharded run.
  bool must_announce(uint64_t step);
  // The device has completed all work; the state is finite.
  void save(SaveReason reason, StepEngine& engine);
  // Takes a snapshot and submits it. False if another one is still in flight, or the group is lost.
  bool try_save(StepEngine& engine);
  // Returns when the state is durable. `is_hurried`: for the error.
  Status save_last(StepEngine& engine, bool is_hurried);
  // Until what was submitted is durable, or has failed.
  void wait_for_writer();
  Status check() const;

 private:
  void fill(writer::Snapshot& snapshot, StepEngine& engine);
  bool must_save_each() const;
  void stall_for_writer();
  void record_skipped(uint64_t step);

  const config::Config& config_;
  TrainingState& state_;
  BatchSource& source_;
  Coordination& ranks_;
  Reporter& reporter_;
  StepInstrumentation& instrumentation_;
  writer::CheckpointWriter& writer_;
  StatusBoard& board_;
  Clock& clock_;
  const bool is_sharded_;  // the optimizer
  SaveTriggers triggers_;
  checkpoint::Manifest manifest_;  // with the current parent
  uint64_t metrics_bytes_;
  std::vector<Done> requests_;        // that wait for the next snapshot
  std::vector<OnProgress> progress_;  // of some of them
  // Step of the last submitted snapshot, or of the checkpoint of this run resumed from.
  std::optional<uint64_t> maybe_submitted_step_;
  bool is_skip_logged_ = false;
};

}  // namespace stoker::train
