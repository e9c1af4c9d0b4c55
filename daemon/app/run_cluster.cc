// The parts of Run that train with parameter servers.
#include <charconv>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "daemon/app/cluster_start.h"
#include "daemon/app/group_start.h"
#include "daemon/app/resume_checkpoint.h"
#include "daemon/app/run.h"
#include "daemon/app/run_outputs.h"
#include "daemon/app/run_segment.h"
#include "daemon/parameter_server/parameter_server.h"
#include "daemon/parameter_server/replica_trainer.h"
#include "daemon/parameter_server/setting_history.h"
#include "daemon/parameter_server/worker_connection.h"
#include "daemon/train/numerics.h"
#include "daemon/train/training_error.h"
#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/config/live_settings.h"
#include "shared/config/load_config.h"
#include "shared/data/record/label_range_check.h"
#include "shared/feed/sandboxed_dataset.h"
#include "shared/model/model_file.h"
#include "shared/run/batch_sizes.h"

namespace stoker::app {
namespace {

using parameter_server::Job;

constexpr const char* kBegunKey = "begun";  // the chief has trained since the servers have started
constexpr const char* kIndexKey = "index_complete";
constexpr const char* kTicketKey = "first_ticket";  // of the whole run, modulo 2^64

std::chrono::milliseconds grace_of_server(const config::DistributedConfig& config) {
  return milliseconds_of(config.stop_deadline_seconds.value_or(config.timeout_seconds));
}

parameter_server::TaskWait wait_for_chief(const ClusterMeeting& met, const ClusterLaunch& cluster) {
  return {met.meeting, cluster.task.cluster.chief_name(), /*is_for_chief=*/true};
}

Status compare_data(const ClusterMeeting& met, const ClusterLaunch& cluster,
                    const config::Config& config, const SegmentStart& start,
                    const std::stop_token& stop) {
  STOKER_ASSIGN_OR_RETURN(const std::string model_file, model::file_digest(config.model));
  return compare_with_chief(*met.store, cluster.task.is_chief(),
                            {{"data.train fingerprint", data::info_of(start.data).fingerprint},
                             {"model digest", start.state->model_digest()},
                             {"model file digest", model_file}},
                            wait_for_chief(met, cluster), stop);
}

// Whether the failure of this task ends the run. Before it has begun, the others wait for the servers and the chief.
// Later, another process of a worker that fails otherwise than by the data or the configuration can continue.
// A chief that is started again leaves the others as they were while it was away.
bool ends_run(const ClusterMeeting& met, const parameter_server::ClusterTask& task, bool has_begun,
              const Status& failure) {
  if (failure.ok() || failure.code() == StatusCode::kClosed) return false;
  const bool is_lost =
      failure.code() == StatusCode::kPeerLost && failure.cause() == StatusCode::kOk;
  if (!has_begun && task.is_chief()) {
    const auto begun = met.store->get(kBegunKey);
    return !begun.ok() || !begun->has_value();
  }
  if (!has_begun) return task.job == Job::kPs;
  if (is_lost || failure.code() == StatusCode::kCancelled) return false;
  const ExitCode code = exit_code_for(failure);
  return task.job == Job::kPs || code == ExitCode::kDataError || code == ExitCode::kConfiguration;
}

// The chief knows from its checkpoint at which ticket the steps of another batch size have ended.
Status share_first_ticket(const ClusterMeeting& met, const ClusterLaunch& cluster,
                          const config::Config& config, train::TrainingState& state,
                          const std::stop_token& stop) {
  const uint64_t before =
      state.step * static_cast<uint64_t>(config.train.gradient_accumulation_steps);
  if (cluster.task.is_chief())
    return met.store->set(kTicketKey, std::to_string(state.ticket - before));
  STOKER_RETURN_IF_ERROR(
      parameter_server::wait_for_task(*met.store, kTicketKey, stop, wait_for_chief(met, cluster)));
  STOKER_ASSIGN_OR_RETURN(const auto text, met.store->get(kTicketKey));
  uint64_t first = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), first);
  state.ticket = before + first;
  return {};
}

// Reads the samples in a worker process, unless workers are threads. A stop ends the reads.
class SampleReads {
 public:
  explicit SampleReads(const std::stop_token& stop)
      : forward_(stop, [this] { source_.request_stop(); }) {}

  // What the process sends is checked last.
  Result<std::unique_ptr<data::Dataset>> open(const config::Config& config,
                                              const std::string& index_dir, data::Source source) {
    auto data = std::get<std::unique_ptr<data::Dataset>>(std::move(source));  // never a stream
    if (config.feed.num_processes == 0) return data;
    STOKER_ASSIGN_OR_RETURN(
        auto sandboxed,
        feed::SandboxedDataset::open(
            config,
            {.dataset = "train",
             .index_dir = index_dir,
             .should_stop = [stop = source_.get_token()] { return stop.stop_requested(); }},
            std::move(data)));
    return data::record::with_range_check(config, std::move(sandboxed));
  }
  const std::stop_source& source() const { return source_; }

 private:
  std::stop_source source_;
  const std::stop_callback<std::function<void()>> forward_;
};

}  // namespace

Result<run::RunOutcome> Run::train_in_cluster(const std::stop_token& stop,
                                              const std::function<void()>& on_training) {
  const ClusterLaunch& cluster = *maybe_launch_->maybe_cluster;
  set_progress_line("waiting for parameter servers");
  auto met = meet_cluster(config_, cluster, layout_, maybe_launch_->settings,
                          maybe_launch_->find_end, preparation_stop_.get_token());
  set_progress_line("");
  bool has_begun = false;
  const auto begin = [&] {
    has_begun = true;
    if (cluster.task.is_chief()) (void)met->store->set(kBegunKey, "1");
    on_training();
  };
  auto outcome = [&]() -> Result<run::RunOutcome> {
    try {
      return met.ok() ? train_as_task(*met, stop, begin) : preparation_outcome(met.status());
    } catch (const std::exception& error) {
      return train::to_status(error);
    }
  }();
  Status failure = outcome.status();
  if (failure.code() == StatusCode::kClosed) {
    finished_because_ = failure.message();
    return run::RunOutcome::kFinished;
  }
  if (!has_begun && outcome.ok()) failure = Status(StatusCode::kCancelled, "startup cancelled");
  if (met.ok() && !failure.ok())
    failure = leave_cluster(*met, cluster.task, failure,
                            ends_run(*met, cluster.task, has_begun, failure));
  return outcome.ok() ? std::move(outcome) : failure;
}

Result<run::RunOutcome> Run::train_as_task(ClusterMeeting& met, const std::stop_token& stop,
                                           const std::function<void()>& on_training) {
  const ClusterLaunch& cluster = *maybe_launch_->maybe_cluster;
  const parameter_server::ClusterTask& task = cluster.task;
  if (const Status same = compare_with_first_server(met, maybe_launch_->settings); !same.ok())
    return preparation_outcome(same);
  train::prepare_environment(config_.run);
  if (const Status configured = train::configure_numerics(config_.run, config_.train);
      !configured.ok())
    return preparation_outcome(configured);

  // The chief builds the index, the others read it.
  if (!task.is_chief()) {
    const Status indexed = parameter_server::wait_for_task(
        *met.store, kIndexKey, preparation_stop_.get_token(), wait_for_chief(met, cluster));
    if (!indexed.ok()) return preparation_outcome(indexed);
  }
  auto data = open_data(std::nullopt, task.is_chief());
  if (!data.ok()) return preparation_outcome(data.status());
  if (task.is_chief()) STOKER_RETURN_IF_ERROR(met.store->set(kIndexKey, "1"));
  if (task.job == Job::kPs) return serve_cluster(met, *std::move(data), stop, on_training);
  return train_as_worker(met, *std::move(data), stop, on_training);
}

Result<run::RunOutcome> Run::serve_cluster(ClusterMeeting& met, data::Source data,
                                           const std::stop_token& stop,
                                           const std::function<void()>& on_training) {
  const ClusterLaunch& cluster = *maybe_launch_->maybe_cluster;
  STOKER_ASSIGN_OR_RETURN(SegmentStart start,
                          create_state(std::move(data), std::nullopt, c10::Device(c10::kCPU)));
  const Status same = compare_data(met, cluster, config_, start, preparation_stop_.get_token());
  if (!same.ok()) return preparation_outcome(same);
  int64_t untrained_bytes = 0;
  if (cluster.task.index == 0 && cluster.task.cluster.worker.size() > 1)
    untrained_bytes =
        parameter_server::packed_bytes(parameter_server::untrained_tensors(start.state->model()));
  parameter_server::SettingHistory settings(config_);
  STOKER_ASSIGN_OR_RETURN(
      auto variables, parameter_server::make_variable_store(
                          config_, std::move(start.state), static_cast<size_t>(cluster.task.index),
                          cluster.task.cluster.ps.size(), cluster.placement, settings));
  parameter_server::ParameterServer server(
      {.task = cluster.task,
       .updates = update_options(config_, cluster),
       .is_recorded = [&settings](uint64_t step) { return settings.is_recorded(step); },
       .apply_settings =
           [&settings](const parameter_server::SettingsVersion& version) -> Result<uint64_t> {
         STOKER_RETURN_IF_ERROR(settings.add(version));
         set_live_log_level(version.live.settings, settings.newest(), version.change);
         return settings.newest().train.max_steps;
       },
       .meeting = met.meeting,
       .untrained_bytes = untrained_bytes},
      std::move(variables));
  on_training();
  channels_.board.set_phase(control::TrainerPhase::kUnwatched);
  // All tasks may have got the signal; the chief then still saves.
  const std::stop_callback end(preparation_stop_.get_token(),
                               [&] { server.request_end(grace_of_server(config_.distributed)); });
  const Status served = server.run(stop);
  channels_.board.set_step(server.step());
  if (served.code() == StatusCode::kCancelled) return run::RunOutcome::kStopped;
  if (!served.ok()) return served;
  return server.outcome();
}

Result<Run::ResumeCheckpoint> Run::find_checkpoint_of_chief(checkpoint::CheckpointStore& store) {
  STOKER_RETURN_IF_ERROR(store.clean_up());
  return find_checkpoint(store, command_.resume);
}

Status Run::start_as_chief(SegmentStart& start, const ResumeCheckpoint& saved) {
  STOKER_ASSIGN_OR_RETURN(config::LiveSettings settings, choose_settings(saved));
  STOKER_ASSIGN_OR_RETURN(start.config, config::with_live_settings(start.config, settings));
  log_contradictions(start.config);
  STOKER_RETURN_IF_ERROR(fill_manifest(start, saved));
  STOKER_RETURN_IF_ERROR(saved ? continue_from(*saved, start) : begin(start));
  start.state->settings = std::move(settings);
  STOKER_RETURN_IF_ERROR(run::write_batch_sizes(default_file_system(), layout_.batch_sizes_file(),
                                                start.state->batch_sizes));
  STOKER_RETURN_IF_ERROR(write_schema_and_metric_table(start));
  remove_lost_setting_changes(saved);
  STOKER_RETURN_IF_ERROR(
      config::write_config(default_file_system(), own_layout_.config_file(), start.config));
  return feed::snapshot_sample_weights(weights_, layout_.index_dir(), start.state->ticket);
}

Result<run::RunOutcome> Run::train_as_worker(ClusterMeeting& met, data::Source data,
                                             const std::stop_token& stop,
                                             const std::function<void()>& on_training) {
  const ClusterLaunch& cluster = *maybe_launch_->maybe_cluster;
  const bool is_chief = cluster.task.is_chief();
  auto store = std::make_unique<checkpoint::CheckpointStore>(layout_.checkpoints_dir(),
                                                             default_file_system());
  ResumeCheckpoint saved;
  if (is_chief) {
    auto found = find_checkpoint_of_chief(*store);
    if (!found.ok()) return preparation_outcome(found.status());
    saved = *std::move(found);
  }
  STOKER_ASSIGN_OR_RETURN(SegmentStart start,
                          create_state(std::move(data), saved, c10::Device(c10::kCPU)));
  const Status same = compare_data(met, cluster, config_, start, preparation_stop_.get_token());
  if (!same.ok()) return preparation_outcome(same);
  config::Config configured = config_;
  configured.cluster.replicas = cluster.replicas;  // also if an option has set it
  start.config = configured;  // start_as_chief() adds the live settings of the checkpoint
  start.store = std::move(store);
  if (is_chief) {
    warn_of_several_workers(config_, cluster, start.state->model());
    STOKER_RETURN_IF_ERROR(start_as_chief(start, saved));
  }
  const Status shared =
      share_first_ticket(met, cluster, config_, *start.state, preparation_stop_.get_token());
  if (!shared.ok()) return preparation_outcome(shared);
  SampleReads reads(stop);
  STOKER_ASSIGN_OR_RETURN(const auto data_of_worker,
                          reads.open(config_, layout_.index_dir(), std::move(start.data)));
  set_live_log_level(start.state->settings, start.config, {});
  RunOutputs outputs(start.config, layout_, data_of_worker->info(), *start.store,
                     start.metric_table, clock_);
  std::optional<parameter_server::ChiefDuties> duties;
  if (is_chief) {
    STOKER_RETURN_IF_ERROR(outputs.open_records(start.state->training_metrics(), start.resume));
    outputs.start(outputs.writer_options());
    duties.emplace(parameter_server::ChiefDuties{.writer = outputs.writer(),
                                                 .sink = outputs,
                                                 .manifest = start.manifest,
                                                 .metrics_bytes = outputs.metrics_bytes(),
                                                 .save_after_resume = start.save_after_resume});
  }
  auto parts = parameter_server::make_server_parts(*start.state, cluster.task.cluster.ps.size(),
                                                   cluster.placement, is_chief);
  if (cluster.task.cluster.worker.size() > 1)
    parts.front().untrained = parameter_server::untrained_tensors(start.state->model());
  const bool sums_norms =
      cluster.replicas == config::ReplicaMode::kSync &&
      parameter_server::needs_norm_of_all(config_, cluster.task.cluster.ps.size());
  auto connection = parameter_server::WorkerConnection::open(
      cluster.task, met.meeting, std::move(parts), preparation_stop_.get_token(), sums_norms);
  if (!connection.ok()) return preparation_outcome(connection.status());
  channels_.board.set_step(start.state->step);
  on_training();
  log_training(start.config, *start.state);
  const auto on_setting_change = [&](uint64_t step, const config::Config& config,
                                     const config::SettingChange& change) {
    set_live_log_level(start.state->settings, config, change);
    if (!change.key.empty()) outputs.record_setting(step, config, change);
  };
  parameter_server::ReplicaTrainer trainer(configured, *data_of_worker, start.plan, *start.state,
                                           **connection, channels_, clock_, std::move(duties),
                                           reads.source(), on_setting_change);
  auto outcome = trainer.run(stop);
  const Status written = outputs.close();
  if (outcome.ok() && !written.ok()) return written;
  return outcome;
}

}  // namespace stoker::app
