// The parts of Run that prepare a segment: its checkpoint, data, plan, state and settings.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "daemon/app/check_evaluated_data.h"
#include "daemon/app/compute_class_weights.h"
#include "daemon/app/dataset_refresher.h"
#include "daemon/app/group_start.h"
#include "daemon/app/pretrained_weights.h"
#include "daemon/app/reduce_learning_rate.h"
#include "daemon/app/restore_sample_errors.h"
#include "daemon/app/resume_checkpoint.h"
#include "daemon/app/resume_compatibility.h"
#include "daemon/app/run.h"
#include "daemon/app/run_segment.h"
#include "daemon/app/stream_data.h"
#include "daemon/app/stream_history_file.h"
#include "daemon/app/version.h"
#include "daemon/train/device.h"
#include "daemon/train/live_state.h"
#include "daemon/train/numerics.h"
#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/machine.h"
#include "shared/base/readable_format.h"
#include "shared/base/tensor_role.h"
#include "shared/config/config_warnings.h"
#include "shared/config/epochs.h"
#include "shared/config/load_config.h"
#include "shared/config/run_metrics.h"
#include "shared/data/files/scan.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/data/record/class_warnings.h"
#include "shared/data/record/label_range_check.h"
#include "shared/feed/worker_pool.h"
#include "shared/feed/worker_sandbox.h"
#include "shared/model/model_file.h"
#include "shared/run/batch_sizes.h"
#include "shared/run/setting_changes.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::app {
namespace {

// Between two attempts to open a locked checkpoint. A stop takes effect within this time.
constexpr std::chrono::milliseconds kLockPollInterval{100};

// Which steps had which batch size: later it is not known from the configuration.
void record_batch_change(train::TrainingState& state, const checkpoint::Manifest& saved,
                         const checkpoint::Manifest& now) {
  const auto sizes_of = [](const checkpoint::Manifest& manifest) {
    config::TrainConfig sizes;
    sizes.micro_batch_size = static_cast<int64_t>(manifest.micro_batch_size);
    sizes.gradient_accumulation_steps = static_cast<int64_t>(manifest.gradient_accumulation_steps);
    return sizes;
  };
  // 0: not recorded, by an earlier release.
  if (saved.micro_batch_size == 0 || saved.gradient_accumulation_steps == 0) return;
  run::change_batch_size(state.batch_sizes, sizes_of(saved), sizes_of(now), state.step,
                         state.ticket);
}

// Restores the state of a resumed run from a checkpoint, with the changes that are allowed. `now`:
// the manifest fields of the run's next checkpoints. `changes`: those already found in the
// configuration. Returns whether there are any changes in total.
//
// kMismatch: a change that is not allowed, with the first differences and the flag. Others as
// TrainingState::restore(). The state is then unusable, and nothing on disk is changed.
Result<bool> load_checkpoint(train::TrainingState& state,
                             const checkpoint::VerifiedCheckpoint& start,
                             const checkpoint::Manifest& now, ResumeCompatibility changes,
                             const AllowedChanges& allowed) {
  const checkpoint::Manifest& saved = start.manifest();
  changes.add_manifest(saved, now);
  STOKER_RETURN_IF_ERROR(changes.check(allowed));
  const bool may_differ = allowed[ChangeKind::kModel];
  const auto restored = state.restore(start, may_differ);
  // Different tensors are a different model or optimizer, even if the configuration is the same.
  if (restored.status().code() == StatusCode::kMismatch && !may_differ)
    changes.add(ChangeKind::kModel, restored.status().message());
  if (restored.ok()) changes.add_model(saved, now);
  STOKER_RETURN_IF_ERROR(changes.check(allowed));
  if (!restored.ok()) return restored.status();
  if (*restored == train::TrainingState::Restored::kPartially)
    changes.add(ChangeKind::kModel, "some tensors differ from the checkpoint");
  if (changes.has(ChangeKind::kBatch)) {
    state.ticket = ticket_at(state.ticket, saved.micro_batch_size, now.micro_batch_size);
    record_batch_change(state, saved, now);
  }
  // The quarantine refers to sample numbers of the previous data.
  if (saved.data_digest != now.data_digest) {
    state.quarantined.clear();
    state.stream.reset();  // likewise its positions
    state.stream_history.reset();
  }
  changes.log_waived_guarantees();
  return changes.any();
}

// Releases before this one could save statistics of batch norm that are not finite. `state`: as restored; of no use
// after an error, which names the newest earlier checkpoint of the run that is finite.
Status check_finite(train::TrainingState& state, const checkpoint::CheckpointStore& store,
                    const checkpoint::VerifiedCheckpoint& restored, bool may_differ) {
  const std::string found = state.first_nonfinite();
  if (found.empty()) return {};
  const auto is_finite = [&](const std::string& path) {
    const auto saved = checkpoint::CheckpointStore::open_verified(path);
    return saved.ok() && state.restore(*saved, may_differ).ok() && state.first_nonfinite().empty();
  };
  const bool is_own = is_checkpoint_of(store, restored);
  std::string way_out =
      is_own ? "start over with --fresh" : "name another checkpoint with --resume";
  const auto entries = store.list();
  if (entries.ok() && is_own) {
    const auto earlier = std::find_if(entries->rbegin(), entries->rend(), [&](const auto& entry) {
      return entry.step < restored.manifest().step && is_finite(entry.path);
    });
    if (earlier != entries->rend())
      way_out = "resume from an earlier one with --resume " + earlier->path;
  }
  return Status(StatusCode::kCorrupt,
                restored.path() + ": " + found + " is not finite; nothing was changed; " + way_out);
}

config::EvaluatedOutputs evaluated_outputs(const config::Config& config,
                                           const data::DatasetInfo& data) {
  const bool has_bytes = std::ranges::any_of(data.spec, [](const TensorSpec& tensor) {
    return role_of(tensor) == TensorRole::kTokens && tensor.dtype == DType::kU8;
  });
  const auto outputs = static_cast<uint64_t>(config.model.num_classes.value_or(0));
  return {.tokens_are_bytes = has_bytes, .num_classes = std::max(data.classes, outputs)};
}

// That of the evaluator, unless it has run as root and left folders that this user cannot write to.
std::string index_dir_of_evaluation(const run::RunLayout& layout) {
  const auto is_writable = [](const std::string& folder) {
    return ::access(folder.c_str(), W_OK) == 0 || errno == ENOENT;
  };
  if (is_writable(layout.eval_dir()) && is_writable(layout.eval_index_dir()))
    return layout.eval_index_dir();
  return join_path(layout.index_dir(), "evaluated");
}

std::string base_sha256(const checkpoint::Manifest& manifest) {
  return manifest.base_weights ? manifest.base_weights->sha256 : "";
}

// Of the segment before, which are newer than those of its checkpoint after a rollback, but for what the run itself has
// changed since.
config::LiveSettings continued_settings(config::LiveSettings before,
                                        const config::LiveSettings& saved) {
  const auto is_own = [](const config::LiveSetting& each) {
    return each.key == config::kNumReductionsKey;
  };
  std::erase_if(before, is_own);
  std::ranges::copy_if(saved, std::back_inserter(before), is_own);
  return before;
}

}  // namespace

Result<std::unique_ptr<RunSegment>> Run::prepare(std::optional<data::Source> data,
                                                 const std::string& resume) {
  STOKER_RETURN_IF_ERROR(check_stop());
  channels_.board.record_progress();
  train::prepare_environment(config_.run);
  STOKER_ASSIGN_OR_RETURN(const c10::Device device, train::open_device(device_));
  config::TrainConfig numerics = config_.train;
  if (num_threads_) numerics.num_threads = num_threads_;
  STOKER_RETURN_IF_ERROR(train::configure_numerics(config_.run, numerics));
  train::select_fused_kernels(config_.train, device);
  auto store = std::make_unique<checkpoint::CheckpointStore>(layout_.checkpoints_dir(),
                                                             default_file_system());
  if (is_chief()) STOKER_RETURN_IF_ERROR(store->clean_up());
  STOKER_ASSIGN_OR_RETURN(const ResumeCheckpoint saved, choose_checkpoint(*store, resume));
  if (!data) {
    STOKER_ASSIGN_OR_RETURN(data, open_data(saved, is_chief() && !live_settings_));
  }
  STOKER_ASSIGN_OR_RETURN(config::LiveSettings settings, choose_settings(saved));
  STOKER_ASSIGN_OR_RETURN(SegmentStart start, create_state(*std::move(data), saved, device));
  STOKER_ASSIGN_OR_RETURN(start.config, config::with_live_settings(config_, settings));
  log_contradictions(start.config);
  start.number = ++num_segments_;
  start.store = std::move(store);
  start.maybe_stream_input = maybe_stream_input_.get();
  start.continues_stream = maybe_stream_input_ != nullptr && live_settings_.has_value();
  STOKER_RETURN_IF_ERROR(fill_manifest(start, saved));
  STOKER_RETURN_IF_ERROR(check_stop());  // nothing of the run has changed
  STOKER_RETURN_IF_ERROR(saved ? continue_from(*saved, start) : begin(start));
  start.state->settings = std::move(settings);
  // Before the chief replaces the configuration, with which the others compare theirs.
  if (group_) STOKER_RETURN_IF_ERROR(synchronize(start, !saved));
  STOKER_RETURN_IF_ERROR(check_stop());  // loading a model can take minutes
  if (is_chief()) {
    STOKER_RETURN_IF_ERROR(write_schema_and_metric_table(start));
    STOKER_RETURN_IF_ERROR(run::write_batch_sizes(default_file_system(), layout_.batch_sizes_file(),
                                                  start.state->batch_sizes));
  }
  STOKER_RETURN_IF_ERROR(
      config::write_config(default_file_system(), own_layout_.config_file(), start.config));
  if (is_chief() && !live_settings_) remove_lost_setting_changes(saved);
  if (is_chief())
    STOKER_RETURN_IF_ERROR(
        feed::snapshot_sample_weights(weights_, layout_.index_dir(), start.state->ticket));
  if (group_)
    STOKER_RETURN_IF_ERROR(group_->text_of_chief("prepared", preparation_stop()).status());
  STOKER_RETURN_IF_ERROR(check_stop());
  auto segment =
      std::make_unique<RunSegment>(config_, RunFiles{.run = layout_, .rank = own_layout_},
                                   maybe_refresher_.get(), clock_, std::move(start), group_.get());
  STOKER_RETURN_IF_ERROR(segment->open());
  return segment;
}

Result<Run::ResumeCheckpoint> Run::choose_checkpoint(const checkpoint::CheckpointStore& store,
                                                     const std::string& resume) {
  rollback_.reset();
  const std::stop_token stop = preparation_stop();
  if (!is_chief()) {
    STOKER_ASSIGN_OR_RETURN(const std::string text, group_->text_of_chief("", stop));
    if (text.empty()) return ResumeCheckpoint();
    const size_t separator = std::min(text.find('\n'), text.size() - 1);
    rollback_ = parse_rollback(text.substr(0, separator));
    return find_checkpoint(store, text.substr(separator + 1));
  }
  STOKER_ASSIGN_OR_RETURN(ResumeCheckpoint found, find_checkpoint(store, resume));
  if (found) {
    STOKER_ASSIGN_OR_RETURN(rollback_, read_rollback(layout_.rollback_file()));
  }
  if (!group_) return found;
  // With the rollback, whose file the others may see later than this text.
  std::string text = rollback_ ? to_json(*rollback_) : "";
  text = found ? text + '\n' + found->path() : "";
  STOKER_RETURN_IF_ERROR(group_->text_of_chief(text, stop).status());
  return found;
}

Result<config::LiveSettings> Run::choose_settings(const ResumeCheckpoint& saved) const {
  if (!saved) return live_settings_.value_or(config::LiveSettings());
  auto state = train::parse_live_state(saved->manifest().live_settings);
  if (!state.ok()) return state.status().with_context(saved->path());
  if (live_settings_) return continued_settings(*live_settings_, state->settings);
  config::ResumedSettings resumed = config::resume_live(config_, state->settings);
  for (const config::LiveSetting& setting : resumed.kept)
    log_info(
        "live setting resumed",
        {{"key", setting.key}, {"current", setting.value}, {"configured", setting.configured}});
  for (const auto& [setting, reason] : resumed.dropped) {
    const auto now = config::value_of(config_, setting.key);
    log_warn("live setting dropped", {{"key", setting.key},
                                      {"previous", setting.value},
                                      {"current", now.ok() ? *now : "(none)"},
                                      {"reason", reason}});
  }
  return std::move(resumed.kept);
}

// The record of the changes, unlike the settings, is not part of the checkpoint.
void Run::remove_lost_setting_changes(const ResumeCheckpoint& saved) const {
  const std::string path = layout_.setting_changes_file();
  const auto log_failure = [&path](const Status& removed) {
    if (!removed.ok())
      log_warn("setting changes not recorded", {{"path", path}, {"error", removed.to_string()}});
  };
  // Those of a start that crashed before its first checkpoint.
  if (!saved) return log_failure(default_file_system().remove_tree(path));
  const auto state = train::parse_live_state(saved->manifest().live_settings);
  if (!state.ok()) return;  // choose_settings() has reported it
  const auto value_of = [&](const std::string& key) {
    for (const config::LiveSetting& setting : state->settings)
      if (setting.key == key) return setting.value;
    const auto configured = config::value_of(config_, key);
    return configured.ok() ? *configured : std::string();
  };
  log_failure(
      run::remove_lost_changes(default_file_system(), path, saved->manifest().step, value_of));
}

// Everything is checked, on all ranks, and what follows changes the run. That it ended before is then past.
Status Run::accept(const SegmentStart& start) {
  const train::TrainingState& state = *start.state;
  if (group_)
    STOKER_RETURN_IF_ERROR(
        group_->check_same({{"data.train fingerprint", data::info_of(start.data).fingerprint},
                            {"model digest", state.model_digest()},
                            {"model file digest", start.manifest.model_file},
                            {"base weights", base_sha256(start.manifest)},
                            {"step", std::to_string(state.step)},
                            {"ticket", std::to_string(state.ticket)},
                            {"rollbacks", std::to_string(state.rollbacks)}},
                           preparation_stop()));
  STOKER_RETURN_IF_ERROR(check_stop());
  if (is_chief() && !is_accepted_)
    STOKER_RETURN_IF_ERROR(run::accept_start(default_file_system(), layout_));
  is_accepted_ = true;
  return {};
}

Status Run::synchronize(SegmentStart& start, bool is_new) {
  train::TrainingState& state = *start.state;
  const std::stop_token stop = preparation_stop();
  for (const std::string& reason : world_size_effects(state.model()))
    log_warn("results depend on the number of ranks", {{"reason", reason}});
  if (!is_new) return {};
  // Initial weights that were computed, not read.
  for (const auto& [name, tensor] : model::named_tensors(state.model()))
    STOKER_RETURN_IF_ERROR(group_->broadcast(tensor, 0, stop));
  return {};
}

Status Run::check_stop() const {
  return stop_requested_ && may_cancel_preparation()
             ? Status(StatusCode::kCancelled, "startup cancelled")
             : Status();
}

Result<Run::ResumeCheckpoint> Run::find_checkpoint(const checkpoint::CheckpointStore& store,
                                                   const std::string& resume) {
  const auto pause = [this](const std::string& waiting_for) {
    publish_wait(waiting_for);
    std::this_thread::sleep_for(kLockPollInterval);
    return check_stop();
  };
  auto found = find_resume_checkpoint(store, layout_, resume, {.pause = pause, .clock = clock_});
  is_blocked_by_lock_ = found.status().code() == StatusCode::kBusy;
  if (!channels_.board.read()->waiting_for.empty()) publish_wait("");
  return found;
}

void Run::publish_wait(const std::string& waiting_for) {
  control::TrainerStatus status = *channels_.board.read();
  status.waiting_for = waiting_for;
  channels_.board.publish(std::move(status));
  channels_.board.record_progress();
  set_progress_line(waiting_for.empty() ? "" : "waiting: " + waiting_for);
}

void Run::report_indexing(const std::string& dataset, uint64_t count, std::string_view what,
                          double fraction) {
  constexpr std::chrono::milliseconds kShowEvery{250};
  constexpr std::chrono::seconds kLogEvery{10};
  if (!check_stop().ok()) throw data::files::ScanStopped();
  const auto now = clock_.monotonic();
  // It is also called while a worker process is waited for.
  const bool has_moved = std::exchange(num_indexed_, count) != count;
  const std::string text = indexing_.add(dataset, count, what, fraction, now);
  if (has_moved) channels_.board.record_progress();
  if (now - indexing_shown_ < kShowEvery) return;
  if (indexing_shown_.count() == 0) indexing_logged_ = now;
  indexing_shown_ = now;
  control::TrainerStatus status = *channels_.board.read();
  status.waiting_for = "the index of " + text;
  channels_.board.publish(std::move(status));
  set_progress_line("indexing " + text);
  if (now - indexing_logged_ < kLogEvery) return;
  indexing_logged_ = now;
  if (fraction >= 0)
    log_info("index progress",
             {{"dataset", dataset},
              {"count", count},
              {"unit", what},
              {"per_second", indexing_.per_second()},
              {"fraction", fraction},
              {"eta_seconds", static_cast<uint64_t>(round_estimate(indexing_.eta_seconds()))}});
  else
    log_info("index progress", {{"dataset", dataset},
                                {"count", count},
                                {"unit", what},
                                {"per_second", indexing_.per_second()}});
}

// Other parts of the preparation are not an index.
void Run::end_indexing() {
  set_progress_line("");
  if (!channels_.board.read()->waiting_for.empty()) publish_wait("");
}

// stoker-eval would fail hours later.
Status Run::check_evaluated_data(const data::Source& train) {
  const Status checked = app::check_evaluated_data(config_, train, index_dir_of_evaluation(layout_),
                                                   std::bind_front(&Run::report_indexing, this));
  end_indexing();
  // A run that trains needs data.train: a missing mount of the others delays its evaluation only.
  const bool is_unavailable = checked.code() == StatusCode::kNotFound ||
                              checked.code() == StatusCode::kIoError ||
                              checked.code() == StatusCode::kPermission;
  if (!is_unavailable) return checked;
  const auto checkpoints =
      checkpoint::CheckpointStore(layout_.checkpoints_dir(), default_file_system()).list();
  if (!checkpoints.ok() || checkpoints->empty()) return checked;
  log_warn("evaluation postponed",
           {{"step", checkpoints->back().step}, {"reason", checked.message()}});
  return {};
}

Result<data::Source> Run::open_data(const ResumeCheckpoint& saved, bool checks_evaluated) {
  // The chief builds the index, the others read it.
  std::string version;
  if (group_ && !group_->is_chief()) {
    STOKER_ASSIGN_OR_RETURN(version, group_->text_of_chief("", preparation_stop()));
  }
  if (const auto* const stream = config::training_stream(config_)) {
    STOKER_ASSIGN_OR_RETURN(maybe_stream_input_, open_stream_input(config_, layout_));
    log_info("stream opened", {{"source", stream->source}});
  }
  const auto progress = [this](uint64_t count, std::string_view what, double fraction) {
    report_indexing("train", count, what, fraction);
  };
  const checkpoint::Manifest* const manifest = saved ? &saved->manifest() : nullptr;
  const auto sandbox = feed::make_sandbox(config_);
  const auto open = [&]() -> Result<data::Source> {
    if (maybe_refresher_) {
      STOKER_ASSIGN_OR_RETURN(
          auto opened, is_chief() ? maybe_refresher_->open(manifest ? manifest->next_ticket : 0,
                                                           manifest, progress)
                                  : maybe_refresher_->open_version(version));
      return data::Source(std::move(opened));
    }
    return data::pipeline::open_source("train", config_.data, layout_.index_dir(), progress,
                                       feed::in_process_cache_budget(config_.feed), sandbox.get());
  };
  auto data = open();
  end_indexing();
  if (!data.ok()) return data.status();
  // While the others wait for as long as indexing can take.
  if (checks_evaluated) STOKER_RETURN_IF_ERROR(check_evaluated_data(*data));
  if (group_ && group_->is_chief()) {
    version = maybe_refresher_ ? maybe_refresher_->version_text() : "index complete";
    STOKER_RETURN_IF_ERROR(group_->text_of_chief(version, preparation_stop()).status());
  }
  auto* const stream = std::get_if<data::Stream>(&*data);
  auto& indexed = stream ? stream->maybe_indexed : std::get<0>(*data);
  if (!indexed) return data;
  const data::DatasetInfo& info = indexed->info();
  log_info("dataset opened", {{"dataset", "train"},
                              {"samples", info.size},
                              {"fingerprint", info.fingerprint.substr(0, 12)},
                              {"num_classes", info.classes},
                              {"class_names", summarize_names(info.class_names)},
                              {"input_columns", summarize_names(info.input_columns)},
                              {"target_columns", summarize_names(info.target_columns)}});
  if (config_.task.has_classes() && is_chief() && !stream)
    data::record::warn_about_classes("train", config_.data, *indexed);
  if (config_.feed.shuffle == config::ShuffleMode::kShards && !stream &&
      indexed->shard_ends().size() == 1)
    log_warn("shard shuffle not effective", {{"reason", "data.train is one shard"}});
  STOKER_ASSIGN_OR_RETURN(weights_, feed::read_sample_weights(config_, *indexed));
  indexed = data::record::with_range_check(config_, std::move(indexed));
  return data;
}

// Plan and newly initialized state.
Result<SegmentStart> Run::create_state(data::Source data, const ResumeCheckpoint& saved,
                                       c10::Device device) {
  const feed::PlanStart plan_start =
      maybe_refresher_ ? maybe_refresher_->plan_start() : feed::PlanStart{};
  const data::Dataset* const indexed = data::indexed_part(data);
  auto plan = feed::make_stream_plan_options(config_);
  if (indexed != nullptr) {
    STOKER_ASSIGN_OR_RETURN(plan, feed::make_plan_options(config_, *indexed, weights_, plan_start));
  }
  const bool has_stream = std::holds_alternative<data::Stream>(data);
  if (!has_stream) feed::log_padding_ratio(*indexed, plan);
  SegmentStart start{.config = {}, .data = std::move(data), .plan = data::order::SamplePlan(plan)};
  if (!has_stream) STOKER_RETURN_IF_ERROR(resolve_epochs(start.plan, saved));
  config::Config config = config_;
  if (!has_stream) {
    STOKER_ASSIGN_OR_RETURN(config.task,
                            compute_class_weights(config_.task, *indexed, plan, saved));
  }
  // The checkpoint has the value of every parameter, and drawing them can take minutes.
  if (saved && !command_.allowed[ChangeKind::kModel]) config.model.init.clear();
  const data::DatasetInfo& info = data::info_of(start.data);
  train::Optimizer::Shard shard;
  if (group_ && config_.distributed.shard == config::Shard::kOptimizer)
    shard = {.index = group_->rank(), .count = group_->world_size()};
  STOKER_ASSIGN_OR_RETURN(start.state, train::TrainingState::create(config, info, device, shard));
  STOKER_ASSIGN_OR_RETURN(start.metric_table,
                          config::resolve_metrics(config, evaluated_outputs(config, info)));
  return start;
}

Status Run::resolve_epochs(const data::order::SamplePlan& plan, const ResumeCheckpoint& saved) {
  const auto micro_batch = static_cast<uint64_t>(config_.train.micro_batch_size);
  const auto tickets_per_step = static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
  uint64_t step = 0, ticket = 0;
  if (saved) {
    const checkpoint::Manifest& manifest = saved->manifest();
    step = manifest.step;
    ticket = ticket_at(manifest.next_ticket, manifest.micro_batch_size, micro_batch);
  }
  const bool is_in_cluster = maybe_launch_ != nullptr && maybe_launch_->maybe_cluster;
  if (is_in_cluster && !config_.epochs.empty() && ticket != step * tickets_per_step)
    return Status(StatusCode::kMismatch,
                  config_.epochs.begin()->first +
                      ": with parameter servers, a run that continues with another batch size "
                      "cannot have settings in epochs; give numbers of steps");
  config::resolve_epochs(config_,
                         {.steps = plan.epoch_tickets() / static_cast<double>(tickets_per_step),
                          .step = step,
                          .epochs = plan.epochs_before(ticket)});
  if (const std::string settings = config::describe_epochs(config_); !settings.empty())
    log_info("epochs resolved",
             {{"steps_per_epoch", config_.epoch_length->steps}, {"settings", settings}});
  return {};
}

// Before config.yaml, which tells other programs that there is a run.
Status Run::write_schema_and_metric_table(const SegmentStart& start) const {
  STOKER_RETURN_IF_ERROR(
      write_file_atomically(default_file_system(), layout_.data_schema_file(),
                            to_json(data::schema_of(data::info_of(start.data)))));
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), layout_.metrics_dir()));
  return write_file_atomically(default_file_system(), layout_.metric_table_file(),
                               eval_metrics::to_json(start.metric_table));
}

// Of a start, not of the segments that follow it.
void Run::log_contradictions(const config::Config& config) const {
  if (!is_chief() || live_settings_) return;
  for (const config::ConfigWarning& warning : config::find_config_warnings(config))
    log_warn("settings contradictory", {{"key", warning.key}, {"reason", warning.message}});
}

Status Run::fill_manifest(SegmentStart& start, const ResumeCheckpoint& saved) const {
  checkpoint::Manifest& manifest = start.manifest;
  manifest.stoker_version = stoker_version();
  manifest.torch_version = torch_version();
  manifest.processor = describe_processor();
  manifest.system = describe_system();
  manifest.device = start.state->device().str();
  manifest.num_threads = static_cast<uint64_t>(at::get_num_threads());
  manifest.micro_batch_size = static_cast<uint64_t>(config_.train.micro_batch_size);
  manifest.gradient_accumulation_steps =
      static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
  manifest.model_digest = start.state->model_digest();
  manifest.tied_parameters = start.state->model().tied_parameters();
  STOKER_ASSIGN_OR_RETURN(manifest.model_file, model::file_digest(config_.model));
  if (const config::TokenizerConfig* const tokenizer = config::training_tokenizer(config_)) {
    STOKER_ASSIGN_OR_RETURN(const auto read, tokenizer::Tokenizer::read(tokenizer->path));
    STOKER_RETURN_IF_ERROR(data::record::check_tokenizer_size(config_, read->size()));
    manifest.tokenizer = read->digest();
  }
  manifest.config_digest = config::digest(config_);
  manifest.data_digest = maybe_refresher_ && saved
                             ? maybe_refresher_->fingerprint_before(saved->manifest().next_ticket)
                             : data::info_of(start.data).fingerprint;
  manifest.data_schema = data::schema_of(data::info_of(start.data));
  if (!config::training_stream(config_) && !maybe_refresher_)
    manifest.data_schema->num_samples = data::info_of(start.data).size;
  size_t name_bytes = 0;
  for (const std::string& name : manifest.data_schema->class_names) name_bytes += name.size();
  if (name_bytes > checkpoint::kMaxClassNameBytes) manifest.data_schema->class_names.clear();
  return {};
}

Status Run::begin(SegmentStart& start) {
  if (is_chief()) STOKER_RETURN_IF_ERROR(warn_of_other_normalization(config_));
  STOKER_RETURN_IF_ERROR(load_pretrained_weights(*start.state, config_.model, layout_));
  if (const std::string found = start.state->first_nonfinite(); !found.empty())
    return Status(StatusCode::kCorrupt, found +
                                            " is not finite before the first step; check "
                                            "model.pretrained.path");
  record_base_weights(config_.model, start.state->model(), start.manifest);
  STOKER_RETURN_IF_ERROR(accept(start));
  if (is_chief()) record_start(default_file_system(), layout_);
  if (maybe_stream_input_)
    STOKER_RETURN_IF_ERROR(take_stream_history(start, data::info_of(start.data).fingerprint));
  STOKER_RETURN_IF_ERROR(resolve_dataset_version(start));
  return restore_errors(start, nullptr);
}

// Of the samples, on this rank. The chief also has those of ranks that the group no longer has.
Status Run::restore_errors(SegmentStart& start, const checkpoint::Manifest* maybe_saved) const {
  FileSystem& files = default_file_system();
  uint64_t of_former_ranks = 0;
  if (is_chief())
    of_former_ranks = truncate_lists_of_former_ranks(
        files, layout_, group_ ? group_->world_size() : 1, maybe_saved);
  checkpoint::Manifest counted = maybe_saved ? *maybe_saved : checkpoint::Manifest();
  // The count of a checkpoint is that of all ranks, and continues on the chief.
  if (!is_chief()) counted.sample_errors = 0;
  STOKER_ASSIGN_OR_RETURN(start.sample_errors,
                          restore_sample_errors(files, own_layout_.sample_errors_file(),
                                                maybe_saved ? &counted : nullptr,
                                                /*lists_all=*/!group_ && of_former_ranks == 0));
  return {};
}

// Sums are split among the threads. By default, their number is that of the cores that the process may use.
void Run::warn_of_other_threads(const checkpoint::Manifest& saved) const {
  const auto now = static_cast<uint64_t>(at::get_num_threads());
  if (!is_chief() || live_settings_ || config_.train.num_threads) return;
  if (saved.num_threads == 0 || saved.num_threads == now) return;
  const std::string previous = std::to_string(saved.num_threads);
  log_warn("thread count changed",
           {{"previous", saved.num_threads},
            {"current", now},
            {"hint", "train.num_threads: " + previous + " continues bit for bit"}});
}

Status Run::continue_from(const checkpoint::VerifiedCheckpoint& saved, SegmentStart& start) {
  const checkpoint::Manifest& manifest = saved.manifest();
  if (config_.model.lora) {
    config::ModelConfig base = config_.model;
    base.lora->path.reset();  // the checkpoint has the adapter
    STOKER_RETURN_IF_ERROR(load_pretrained_weights(*start.state, base, layout_));
    record_base_weights(base, start.state->model(), start.manifest);
  }
  STOKER_ASSIGN_OR_RETURN(start.save_after_resume,
                          load_checkpoint(*start.state, saved, start.manifest,
                                          changed_config(start.config), command_.allowed));
  STOKER_RETURN_IF_ERROR(
      check_finite(*start.state, *start.store, saved, command_.allowed[ChangeKind::kModel]));
  if (maybe_refresher_ && manifest.next_ticket != start.state->ticket &&
      maybe_refresher_->history().size() > 1)
    return Status(StatusCode::kMismatch,
                  "train.micro_batch_size: cannot change after a dataset refresh, because dataset "
                  "versions start at tickets of the previous batch size");
  STOKER_RETURN_IF_ERROR(accept(start));
  // Also of a checkpoint from before the first batch. Other data starts over.
  if (maybe_stream_input_ && manifest.data_digest == start.manifest.data_digest)
    STOKER_RETURN_IF_ERROR(take_stream_history(start, saved.manifest_sha256()));
  STOKER_RETURN_IF_ERROR(resolve_dataset_version(start));
  start.is_saved = is_checkpoint_of(*start.store, saved);
  if (is_chief()) {
    // An own checkpoint of the same step is another state, too.
    const uint64_t kept = start.is_saved ? manifest.step : std::max<uint64_t>(manifest.step, 1) - 1;
    STOKER_RETURN_IF_ERROR(
        archive_later_checkpoints(default_file_system(), *start.store, layout_, kept));
    record_resumed_checkpoint(default_file_system(), *start.store, layout_, saved);
  }
  STOKER_RETURN_IF_ERROR(restore_errors(start, &manifest));
  warn_of_other_threads(manifest);
  start.manifest.parent_checkpoint = checkpoint::CheckpointStore::checkpoint_name(manifest.step);
  start.resume = metrics::ResumePosition{manifest.step, manifest.metrics_bytes};
  reduce_learning_rate(rollback_, config_.train, manifest.step, *start.state);
  log_info("run resumed", {{"step", manifest.step}, {"checkpoint", saved.path()}});
  return {};
}

// Has more than the checkpoint, if the process before ended by itself.
Status Run::take_stream_history(SegmentStart& start, const std::string& follows) const {
  STOKER_ASSIGN_OR_RETURN(
      auto history,
      app::take_stream_history(default_file_system(), layout_.stream_history_file(), follows));
  if (history) start.state->stream_history = std::move(history);
  return {};
}

ResumeCompatibility Run::changed_config(const config::Config& now) const {
  ResumeCompatibility changes;
  auto before = config::load_config(layout_.config_file(), {});
  if (before.ok()) {
    // The file is that of the chief.
    changes.add_config(is_chief() ? *before : without_duties_of_chief(*std::move(before)), now);
  } else {
    log_warn("previous configuration unreadable", {{"error", before.status().message()}});
  }
  return changes;
}

Status Run::resolve_dataset_version(SegmentStart& start) {
  if (!maybe_refresher_) return {};
  start.manifest.dataset_versions = maybe_refresher_->history();
  // The quarantine refers to sample numbers of the previous version.
  if (std::exchange(start.manifest.data_digest, data::info_of(start.data).fingerprint) !=
      data::info_of(start.data).fingerprint)
    start.state->quarantined.clear();
  return is_chief() ? maybe_refresher_->save() : Status();
}

}  // namespace stoker::app
