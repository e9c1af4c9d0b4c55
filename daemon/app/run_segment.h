// RunSegment: a part of a run that one trainer executes, with everything that the trainer needs:
// data, plan and state, ring and workers, metrics and checkpoints.
//
// A segment ends with the run, with a rollback, or when training switches to a new dataset version;
// the last two are followed by another segment.
//
// Threads:   the trainer thread; add_live(), save_progress(), stream_threads() and attach() from any thread after open().
// Blocking:  open() for files and for starting the workers; train() until the segment ends;
//            shut_down() for the workers and writers, up to 10 s each; roll_back() and
//            apply_refresh() for the disk; the rest never.
// Ownership: what the constructor takes by reference or pointer must outlive this object.
// Errors:    those of its parts.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "daemon/app/run_outputs.h"
#include "daemon/group/process_group.h"
#include "daemon/supervisor/feed_supervisor.h"
#include "daemon/train/batch_source.h"
#include "daemon/train/sharded_commit.h"
#include "daemon/train/trainer.h"
#include "daemon/train/trainer_channels.h"
#include "daemon/train/training_state.h"
#include "daemon/writer/checkpoint_writer.h"
#include "shared/base/clock.h"
#include "shared/base/coordinator.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/control/trainer_status.h"
#include "shared/data/order/sample_plan.h"
#include "shared/data/source.h"
#include "shared/feed/batch_receiver.h"
#include "shared/feed/stream_state.h"
#include "shared/metrics/metrics_writer.h"
#include "shared/ring/shm_ring.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

class DatasetRefresher;
struct StreamInput;

// Where a segment reads and writes: the files of the run, and those that each rank of a group has. Both
// are the same without a group, and on the chief.
struct RunFiles {
  const run::RunLayout& run;
  const run::RunLayout& rank;
};

// What a segment starts from; prepared by Run.
struct SegmentStart {
  uint64_t number = 1;    // counted in the process, equal on all ranks of a group
  config::Config config;  // in effect, with the live settings of the state
  data::Source data;
  data::order::SamplePlan plan;
  std::unique_ptr<train::TrainingState> state = nullptr;
  std::unique_ptr<checkpoint::CheckpointStore> store = nullptr;
  const StreamInput* maybe_stream_input = nullptr;  // see open_stream_input()
  bool continues_stream = false;                    // a segment before has read it
  eval_metrics::MetricTable metric_table = {};
  checkpoint::Manifest manifest = {};  // the fields that all checkpoints of the run share
  std::optional<metrics::ResumePosition> resume = std::nullopt;  // set if resumed from a checkpoint
  supervisor::SampleErrorHistory sample_errors = {};
  // Save after the first step, so that the next start need not be allowed the same changes again.
  bool save_after_resume = false;
  bool is_saved = true;  // as TrainerStart::is_saved
};

// After this change; without a key at a start with these settings.
void set_live_log_level(const config::LiveSettings& settings, const config::Config& config,
                        const config::SettingChange& change);
// "training started"
void log_training(const config::Config& config, const train::TrainingState& state);

class RunSegment final : private train::BatchSource {
 public:
  // `config`: as configured. `maybe_refresher`: null if data.train is not refreshed. `maybe_group`: null if this process
  // trains alone.
  RunSegment(const config::Config& config, const RunFiles& files, DatasetRefresher* maybe_refresher,
             Clock& clock, SegmentStart start, group::ProcessGroup* maybe_group = nullptr);

  // Opens the outputs, creates the ring, starts the workers. After an error, destroy this object.
  Status open();
  // An error of the workers takes precedence over the trainer's. Call once.
  Result<train::TrainerOutcome> train(train::TrainerChannels& channels, std::stop_token stop);
  // Stops filling the ring first, then writes everything that was passed to the writers, and what was
  // read of a stream that cannot be read again. Call after train(), whatever its result.
  Status shut_down();

  // What must follow an outcome; after shut_down(). In a group the chief changes the run, and the others
  // wait for it when they prepare the next segment.
  Status roll_back();      // kRolledBack
  Status apply_refresh();  // kNewDatasetVersion
  void end_stream();       // kDataExhausted
  // For the next segment; after shut_down().
  data::Source release_data() { return std::move(data_); }

  // Only for the trainer thread.
  uint64_t step() const { return state_->step; }
  c10::Device device() const { return state_->device(); }
  const config::LiveSettings& live_settings() const { return state_->settings; }
  // Adds what the ring, the workers and the checkpoint writer report.
  void add_live(control::TrainerStatus& status) const;
  // Changes with each attempt to write the checkpoint that is in progress; nullopt: none is.
  std::optional<uint64_t> save_progress() const;
  ThreadList stream_threads() const { return feed_->stream_threads(); }
  // As FeedSupervisor::attach().
  Result<supervisor::Attachment> attach(supervisor::ExternalProcess process);

 private:
  // Part of open(), in this order.
  Status open_outputs();
  void share_commits(writer::WriterOptions& saving);
  Status start_feed();
  void save_stream_history() const;
  void apply_setting(uint64_t step, const config::Config& config,
                     const config::SettingChange& change);
  bool is_chief() const { return maybe_group_ == nullptr || maybe_group_->is_chief(); }
  ring::TicketShare share() const;
  void add_feed(control::TrainerStatus::Feed& status) const;

  // BatchSource
  ring::ShmRing& ring() override { return *ring_; }
  const data::order::SamplePlan& plan() const override { return plan_; }
  feed::BatchShapes shapes() const override;
  bool has_new_version_at(uint64_t ticket) const override;
  bool accept(const feed::ReceivedBatch& batch) override;
  const feed::StreamState* maybe_stream() const override { return stream_ ? &*stream_ : nullptr; }
  std::optional<feed::StreamHistory> history_of(const feed::StreamState& state) const override;
  bool waits_for_producer() const override { return !feed_->waits_for().empty(); }
  std::vector<std::string> files_of(uint64_t ticket) const override;
  ProcessUse worker_use() const override { return feed_->worker_use(); }
  std::vector<uint64_t> quarantined() const override;
  uint64_t sample_errors_before(uint64_t ticket) override;

  // Constant after construction.
  const uint64_t number_;
  const config::Config& configured_;
  const config::Config config_;  // in effect at the start of the segment
  const run::RunLayout& layout_;
  const run::RunLayout& rank_layout_;
  group::ProcessGroup* const maybe_group_;
  DatasetRefresher* const maybe_refresher_;
  Clock& clock_;

  // The fields of SegmentStart.
  data::Source data_;
  const data::order::SamplePlan plan_;
  const std::unique_ptr<train::TrainingState> state_;
  const std::unique_ptr<checkpoint::CheckpointStore> store_;
  const StreamInput* const maybe_stream_input_;
  const bool continues_stream_;
  const eval_metrics::MetricTable metric_table_;
  const checkpoint::Manifest manifest_;
  const std::optional<metrics::ResumePosition> resume_;
  const supervisor::SampleErrorHistory sample_errors_;
  const bool save_after_resume_;
  const bool is_saved_;

  // Set by open(); each has its own synchronization.
  std::unique_ptr<ring::ShmRing> ring_;
  std::unique_ptr<train::ShardedCommit> sharded_commit_;  // null: one process writes checkpoints
  std::unique_ptr<supervisor::FeedSupervisor> feed_;
  std::unique_ptr<RunOutputs> outputs_;  // its threads use the objects above

  std::optional<feed::StreamState> stream_;  // after the last batch that was accepted

  // Set by train().
  std::function<Status(const feed::ReceivedBatch&)> validate_;  // empty: every batch is valid

  // The threads of the objects above, so destroyed first, in reverse order.
  Coordinator feeders_;
  Coordinator watchers_;  // DatasetMonitor
};

}  // namespace stoker::app
