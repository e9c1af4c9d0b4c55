// Run: trains from the configuration and the data to the end of the run, one segment after another,
// and answers the control server.
//
// Except for index files and the remains of unfinished checkpoints, the preparation of a segment
// changes nothing in the run directory until it is certain that the run can continue with its
// configuration.
//
// Threads:   train() on the trainer thread. All other methods from any thread at any time.
// Blocking:  train() until training has ended and everything it saved is durable. The others only
//            briefly: status() lists RUN/eval at most once per second, and status() and attach()
//            wait for the lock of the supervisor of the workers.
// Ownership: what the constructor takes by reference must outlive this object.
// Errors:    train(): those of the preparation, the workers, the trainer and the writers; in a group
//            also kPeerLost.
//
// In a group of ranks that share the steps, each has a Run. Only that of the chief writes to the run
// directory; the others write to their rank directory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "daemon/app/command_line.h"
#include "daemon/app/evaluator_status_reader.h"
#include "daemon/app/group_launch.h"
#include "daemon/app/index_progress.h"
#include "daemon/app/rollback.h"
#include "daemon/group/flight_recorder.h"
#include "daemon/group/process_group.h"
#include "daemon/server/training_control.h"
#include "daemon/service/watchdog.h"
#include "daemon/train/trainer_channels.h"
#include "shared/base/clock.h"
#include "shared/base/status.h"
#include "shared/base/thread_registry.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/config/live_settings.h"
#include "shared/control/trainer_status.h"
#include "shared/data/source.h"
#include "shared/feed/make_sample_plan.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"

namespace c10 {
struct Device;
}  // namespace c10

namespace stoker::app {

class DatasetRefresher;
class ResumeCompatibility;
class RunSegment;
struct ClusterMeeting;
struct SegmentStart;
struct StreamInput;

class Run final : public server::TrainingControl {
 public:
  // `maybe_launch`: of the group; null: this process trains alone.
  Run(const config::Config& config, const CommandLine& command, const run::RunLayout& layout,
      Clock& clock, const GroupLaunch* maybe_launch = nullptr);
  ~Run() override;

  // kFinished, kStopped or kPreempted; a failure is a Status. `on_training` is called once, when the first
  // segment is prepared: the workers fill the ring, and the trainer is about to wait for a batch.
  // Each further segment is prepared from the start, except that a dataset that is not refreshed
  // stays open. Throws nothing. Call once.
  Result<run::RunOutcome> train(std::stop_token stop, const std::function<void()>& on_training);

  // Ends training after the current step, or the preparation, during which no commands are taken. In a
  // group a later preparation ends first, and training after one step.
  // `is_preemption`: the launcher will start the run again.
  void request_stop(bool is_preemption = false);
  // `on_stop` is called if `stop` arrives before training: it ends the preparation as SIGTERM does. Before train().
  void set_stop_listener(std::function<void()> on_stop) { on_stop_ = std::move(on_stop); }
  // Whether a segment is open. False during each preparation; remains true after the last segment.
  bool is_prepared() const;
  // Whether the start has been accepted (run_state.h). From any thread.
  bool is_accepted() const { return is_accepted_; }
  // Whether train() ended because a checkpoint stayed locked. Only after train().
  bool is_blocked_by_lock() const { return is_blocked_by_lock_; }
  // Whether it ended because a stream had no more data. Only after train().
  bool is_data_exhausted() const { return is_data_exhausted_; }
  // Why this run has ended before, on all ranks of a group; empty: it has not. Only after train(), which then has
  // done nothing.
  const std::string& finished_because() const { return finished_because_; }
  // Changes with each start and end of an exchange with the other ranks of a group; 0 before the end of the
  // first one; nullopt: none is expected now.
  std::optional<uint64_t> group_exchanges() const;
  // While an exchange is expected: names the ranks that are known to have failed or exited; empty: none. Asks the
  // store, at most for some seconds.
  std::string lost_ranks() const;
  // Writes the last collectives of this rank, which leaves because of `reason`: as
  // group::write_flight_record(). Empty without a group.
  std::string record_flight(const std::string& reason) const;
  uint64_t step() const { return channels_.board.step(); }  // completed
  // What the watchdog observes; from one thread. Waits for no lock that another thread can hold while it
  // hangs.
  service::WatchedRun watched();

  // TrainingControl
  std::shared_ptr<const control::TrainerStatus> status() const override;
  ThreadList threads() const override;
  using TrainingControl::post;
  void post(control::Command command, Done done, OnProgress on_progress) override;
  Result<std::string> read_inspection(uint64_t inspection, uint64_t after) override;
  Result<std::string> peek_inspection(uint64_t inspection, uint64_t after) override;
  Status close_inspection(uint64_t inspection) override;
  Result<std::string> settings(const std::string& key, bool with_secrets) const override;
  // Whether training is paused without the memory of its device.
  bool is_released() const { return is_released_; }
  // kBusy during the preparation and in such a pause. Otherwise as FeedSupervisor::attach().
  Result<server::AttachedRing> attach(pid_t pid, UniqueFd pidfd) override;

 private:
  // Empty: a new run.
  using ResumeCheckpoint = std::optional<checkpoint::VerifiedCheckpoint>;

  Result<run::RunOutcome> train_segments(std::stop_token stop,
                                         const std::function<void()>& on_training);
  Result<run::RunOutcome> train_in_group(std::stop_token stop,
                                         const std::function<void()>& on_training);
  // As a task of a cluster of parameter servers and workers (run_cluster.cc).
  Result<run::RunOutcome> train_in_cluster(const std::stop_token& stop,
                                           const std::function<void()>& on_training);
  Result<run::RunOutcome> train_as_task(ClusterMeeting& met, const std::stop_token& stop,
                                        const std::function<void()>& on_training);
  Result<run::RunOutcome> serve_cluster(ClusterMeeting& met, data::Source data,
                                        const std::stop_token& stop,
                                        const std::function<void()>& on_training);
  Result<run::RunOutcome> train_as_worker(ClusterMeeting& met, data::Source data,
                                          const std::stop_token& stop,
                                          const std::function<void()>& on_training);
  Result<ResumeCheckpoint> find_checkpoint_of_chief(checkpoint::CheckpointStore& store);
  Status start_as_chief(SegmentStart& start, const ResumeCheckpoint& saved);
  Result<run::RunOutcome> start_or_finish(const std::stop_token& stop,
                                          const std::function<void()>& on_training);
  // The start of a group: settings and threads of all ranks.
  Status compare_with_group();
  Status check_shared_directory(const std::stop_token& stop);
  // Rejects pending and later commands at the end of training, before this rank waits for others of its group.
  void end_requests(const Status& failure);
  // The end of a group that was stopped.
  void end_together(const std::stop_token& stop);
  // After a pause with `release`. `last`: the status at its end.
  void release_device_memory(c10::Device device, control::TrainerStatus last);
  // kStopped or kPreempted if `error` is the effect of request_stop().
  Result<run::RunOutcome> preparation_outcome(const Status& error) const;
  // Makes the segment visible to other threads; null: none.
  RunSegment* publish(std::unique_ptr<RunSegment> segment);

  // Preparation. kCancelled after request_stop(), if may_cancel_preparation().
  //
  // `data`: nullopt for refreshable data, which is opened in the version that the checkpoint needs.
  // `resume`: path of the checkpoint; empty: the newest valid one.
  Result<std::unique_ptr<RunSegment>> prepare(std::optional<data::Source> data,
                                              const std::string& resume);
  Status check_stop() const;
  // Later, the ranks of a group stop together: with the first step of the segment.
  bool may_cancel_preparation() const { return !group_ || !live_settings_; }
  std::stop_token preparation_stop() const {
    return may_cancel_preparation() ? preparation_stop_.get_token() : std::stop_token();
  }
  // The newest valid checkpoint, or the one at `resume`; publishes what it waits for.
  Result<ResumeCheckpoint> find_checkpoint(const checkpoint::CheckpointStore& store,
                                           const std::string& resume);
  // On the other ranks of a group, the one that the chief has found.
  Result<ResumeCheckpoint> choose_checkpoint(const checkpoint::CheckpointStore& store,
                                             const std::string& resume);
  void publish_wait(const std::string& waiting_for);
  // `checks_evaluated`: also what stoker-eval will read.
  Result<data::Source> open_data(const ResumeCheckpoint& saved, bool checks_evaluated);
  // Of the datasets that stoker-eval will read (check_evaluated_data.h).
  Status check_evaluated_data(const data::Source& train);
  // Shows it in the status, and every ten seconds in the log. Throws data::files::ScanStopped after request_stop().
  void report_indexing(const std::string& dataset, uint64_t count, std::string_view what,
                       double fraction);
  void end_indexing();
  Result<SegmentStart> create_state(data::Source data, const ResumeCheckpoint& saved,
                                    c10::Device device);
  // Replaces settings in epochs by numbers of steps, for the data and from the checkpoint on.
  Status resolve_epochs(const data::order::SamplePlan& plan, const ResumeCheckpoint& saved);
  Status fill_manifest(SegmentStart& start, const ResumeCheckpoint& saved) const;
  Status write_schema_and_metric_table(const SegmentStart& start) const;
  void log_contradictions(const config::Config& config) const;
  void warn_of_other_threads(const checkpoint::Manifest& saved) const;
  Status begin(SegmentStart& start);
  Status continue_from(const checkpoint::VerifiedCheckpoint& saved, SegmentStart& start);
  Status restore_errors(SegmentStart& start, const checkpoint::Manifest* maybe_saved) const;
  Status take_stream_history(SegmentStart& start, const std::string& follows) const;
  ResumeCompatibility changed_config(const config::Config& now) const;
  // Of the segment before, or of the checkpoint.
  Result<config::LiveSettings> choose_settings(const ResumeCheckpoint& saved) const;
  void remove_lost_setting_changes(const ResumeCheckpoint& saved) const;
  // kMismatch: the states of the ranks of a group differ.
  Status accept(const SegmentStart& start);
  // Makes new states of the ranks equal.
  Status synchronize(SegmentStart& start, bool is_new);
  bool is_chief() const { return !group_ || group_->is_chief(); }
  Status resolve_dataset_version(SegmentStart& start);

  // Constant after construction, or set before train().
  std::function<void()> on_stop_;
  const config::Config& configured_;  // settings in epochs as configured
  const CommandLine& command_;
  const run::RunLayout& layout_;
  const GroupLaunch* const maybe_launch_;
  const run::RunLayout own_layout_;  // of this rank; layout_ without a group or on the chief
  Clock& clock_;
  const std::chrono::nanoseconds started_;

  // Own synchronization.
  train::TrainerChannels channels_;
  const EvaluatorStatusReader evaluator_;
  const std::unique_ptr<group::FlightRecorder> maybe_recorder_;  // of a group
  // Only ever becomes true; relaxed order would do, because nothing else is passed with it.
  std::atomic<bool> stop_requested_{false};
  std::atomic<bool> is_preempted_{false};  // the same
  std::atomic<bool> is_accepted_{false};   // the same
  std::atomic<bool> is_released_{false};   // for other threads, which only show it
  std::stop_source preparation_stop_;      // the same for the waits of a group before training

  // Only for the trainer thread.
  config::Config config_;  // its settings in epochs are resolved for each segment
  std::unique_ptr<group::ProcessGroup> group_;               // null: this process trains alone
  std::optional<int> num_threads_;                           // in a group, for train.num_threads
  config::DeviceConfig device_;                              // in a group that of this rank
  const std::unique_ptr<DatasetRefresher> maybe_refresher_;  // null: data.train is not refreshed
  bool is_blocked_by_lock_ = false;
  bool is_data_exhausted_ = false;
  std::string finished_because_;
  std::unique_ptr<StreamInput> maybe_stream_input_;  // opened once, for all segments
  uint64_t num_segments_ = 0;                        // that have been prepared
  uint64_t num_indexed_ = 0;                         // the last count of report_indexing()
  IndexProgress indexing_;
  std::chrono::nanoseconds indexing_shown_{0}, indexing_logged_{0};
  std::optional<config::LiveSettings>
      live_settings_;                 // of the segment before; nullopt: there is none
  std::optional<Rollback> rollback_;  // the last one of the run, when it resumes
  feed::SampleWeights weights_;       // read once, so that a rollback uses the same ones

  std::optional<uint64_t> watched_save_;  // only for watched()

  mutable std::mutex mutex_;
  // The pointer is guarded by mutex_, which the trainer thread needs only to change it.
  std::unique_ptr<RunSegment> segment_;
};

}  // namespace stoker::app
