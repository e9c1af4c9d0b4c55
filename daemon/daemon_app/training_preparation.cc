#include "daemon/daemon_app/training_preparation.h"

#include <utility>

#include <ATen/Parallel.h>

#include "daemon/daemon_app/bad_samples_so_far.h"
#include "daemon/daemon_app/first_weights.h"
#include "daemon/daemon_app/growing_data.h"
#include "daemon/daemon_app/load_checkpoint.h"
#include "daemon/daemon_app/lower_lr.h"
#include "daemon/daemon_app/run_views.h"
#include "daemon/daemon_app/start_point.h"
#include "daemon/daemon_app/version.h"
#include "daemon/daemon_app/weigh_classes.h"
#include "daemon/train/device.h"
#include "daemon/train/numerics.h"
#include "shared/base/log.h"
#include "shared/config/load_config.h"
#include "shared/dataset/value_limits.h"
#include "shared/feed/padding_report.h"
#include "shared/feed/plan_settings.h"
#include "shared/model/model_file.h"

namespace stoker::daemon_app {

TrainingPreparation::TrainingPreparation(const config::Config& config, const CommandLine& command,
                                         const run::RunLayout& layout, GrowingData* maybe_growing,
                                         train::StatusBoard& board, Clock& clock)
    : config_(config),
      command_(command),
      layout_(layout),
      maybe_growing_(maybe_growing),
      board_(board),
      clock_(clock) {}

Status TrainingPreparation::check_stop() const {
  return stop_asked_ ? Status(Code::kCancelled, "startup cancelled") : Status();
}

Result<std::unique_ptr<dataset::Dataset>> TrainingPreparation::open_data(const StartPoint& start) {
  auto progress = [this](uint64_t count, std::string_view what) {
    board_.note_progress();
    set_live_line("indexing data.train: " + std::to_string(count) + ' ' + std::string(what));
  };
  const checkpoint::Manifest* const saved = start ? &start->manifest() : nullptr;
  auto data = maybe_growing_
                  ? maybe_growing_->open(saved ? saved->ticket : 0, saved, progress)
                  : dataset::open_dataset("train", config_.data, layout_.index(), progress);
  set_live_line("");
  if (!data.ok()) return data.status();
  log_info("dataset opened", {{"dataset", "train"},
                              {"samples", (*data)->size()},
                              {"fingerprint", (*data)->fingerprint().substr(0, 12)}});
  if (config_.feed.shuffle == config::ShuffleMode::kShards && (*data)->shard_ends().size() == 1)
    log_warn("shard shuffle not effective", {{"reason", "data.train is one shard"}});
  STOKER_ASSIGN_OR_RETURN(weights_, feed::read_sample_weights(config_, **data));
  return dataset::within_limits(config_, *std::move(data));
}

Result<std::unique_ptr<TrainingParts>> TrainingPreparation::prepare(
    std::unique_ptr<dataset::Dataset> data, const std::string& resume) {
  STOKER_RETURN_IF_ERROR(check_stop());
  train::prepare_environment(config_.run);
  STOKER_ASSIGN_OR_RETURN(const c10::Device device, train::open_device(config_.train.device));
  train::set_up_numerics(config_.run, config_.train);
  auto store = std::make_unique<checkpoint::CheckpointStore>(layout_.checkpoints(), real_files());
  STOKER_RETURN_IF_ERROR(store->clean_up());
  STOKER_ASSIGN_OR_RETURN(const StartPoint start, find_start_point(*store, resume));
  if (!data) {
    STOKER_ASSIGN_OR_RETURN(data, open_data(start));
  }
  STOKER_ASSIGN_OR_RETURN(auto parts, make_parts(std::move(data), start, device));
  parts->store = std::move(store);
  STOKER_RETURN_IF_ERROR(describe(*parts, start));
  STOKER_RETURN_IF_ERROR(start ? go_on(*parts, *start) : begin(*parts));
  STOKER_RETURN_IF_ERROR(
      write_file_atomically(real_files(), layout_.config_file(), config::to_yaml(config_)));
  STOKER_RETURN_IF_ERROR(
      feed::keep_sample_weights(weights_, layout_.index(), parts->state->ticket));
  STOKER_RETURN_IF_ERROR(check_stop());
  STOKER_RETURN_IF_ERROR(parts->open_outputs(config_, layout_, clock_));
  STOKER_RETURN_IF_ERROR(parts->start_feed(
      config_, layout_, maybe_growing_ ? maybe_growing_->index_dir() : layout_.index(), clock_));
  if (maybe_growing_) maybe_growing_->watch(*parts->data, parts->watchers);
  log_info("training started", {{"model_digest", parts->state->model_digest().substr(0, 12)},
                                {"device", device.str()},
                                {"num_threads", at::get_num_threads()},
                                {"start_step", parts->state->step},
                                {"max_steps", config_.train.max_steps}});
  return parts;
}

Result<std::unique_ptr<TrainingParts>> TrainingPreparation::make_parts(
    std::unique_ptr<dataset::Dataset> data, const StartPoint& start, c10::Device device) {
  const feed::PlanStart began = maybe_growing_ ? maybe_growing_->plan_start() : feed::PlanStart{};
  STOKER_ASSIGN_OR_RETURN(const auto plan, feed::plan_settings(config_, *data, weights_, began));
  feed::log_padding(*data, plan);
  auto parts = std::make_unique<TrainingParts>(std::move(data), plan);
  config::Config weighed = config_;
  STOKER_ASSIGN_OR_RETURN(weighed.task, weigh_classes(config_.task, *parts->data, start));
  STOKER_ASSIGN_OR_RETURN(parts->state,
                          train::TrainingState::create(weighed, *parts->data, device));
  return parts;
}

// What the checkpoints of this run are going to say of themselves.
Status TrainingPreparation::describe(TrainingParts& parts, const StartPoint& start) const {
  checkpoint::Manifest& manifest = parts.manifest;
  manifest.build = stoker_version();
  manifest.torch = torch_version();
  manifest.batch = static_cast<uint64_t>(config_.train.micro_batch_size);
  manifest.accumulate = static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
  manifest.model_digest = parts.state->model_digest();
  STOKER_ASSIGN_OR_RETURN(manifest.model_file, model::file_digest(config_.model));
  manifest.config_digest = config::digest(config_);
  manifest.data_digest = maybe_growing_ && start
                             ? maybe_growing_->digest_before(start->manifest().ticket)
                             : parts.data->fingerprint();
  return {};
}

Status TrainingPreparation::begin(TrainingParts& parts) {
  STOKER_RETURN_IF_ERROR(begin_with_weights(*parts.state, config_.model, layout_));
  show_begin(config_, parts.state->model(), layout_, clock_);
  STOKER_RETURN_IF_ERROR(settle_growth(parts, nullptr));
  STOKER_ASSIGN_OR_RETURN(parts.bad_samples,
                          bad_samples_so_far(real_files(), layout_.bad_samples_file(), nullptr));
  return {};
}

Status TrainingPreparation::go_on(TrainingParts& parts,
                                  const checkpoint::VerifiedCheckpoint& start) {
  const checkpoint::Manifest& saved = start.manifest();
  STOKER_ASSIGN_OR_RETURN(parts.save_soon, load_checkpoint(*parts.state, start, parts.manifest,
                                                           changed_settings(), command_.allowed));
  STOKER_RETURN_IF_ERROR(settle_growth(parts, &saved));
  STOKER_RETURN_IF_ERROR(set_aside_later(real_files(), *parts.store, saved.step));
  STOKER_ASSIGN_OR_RETURN(parts.bad_samples,
                          bad_samples_so_far(real_files(), layout_.bad_samples_file(), &saved));
  parts.manifest.parent = checkpoint::CheckpointStore::name_of(saved.step);
  parts.resume = metrics::ResumePoint{saved.step, saved.metrics_bytes};
  STOKER_RETURN_IF_ERROR(
      lower_lr_after_rollback(layout_.rollback_file(), config_.train, saved.step, *parts.state));
  log_info("run resumed", {{"step", saved.step}, {"checkpoint", start.path()}});
  return {};
}

RunChanges TrainingPreparation::changed_settings() const {
  RunChanges changes;
  const auto before = config::load_config(layout_.config_file(), {});
  if (before.ok()) {
    changes.add_settings(*before, config_);
  } else {
    log_warn("previous configuration unreadable", {{"error", before.status().message()}});
  }
  return changes;
}

Status TrainingPreparation::settle_growth(TrainingParts& parts,
                                          const checkpoint::Manifest* maybe_saved) {
  if (!maybe_growing_) return {};
  parts.manifest.data_history = maybe_growing_->history();
  if (maybe_saved && maybe_saved->ticket != parts.state->ticket &&
      parts.manifest.data_history.size() > 1)
    return Status(
        Code::kMismatch,
        "train.micro_batch_size: cannot change in a run whose data has grown: what came joined at "
        "tickets of the batch before");
  // What readers died of is known by numbers of the samples before.
  if (std::exchange(parts.manifest.data_digest, parts.data->fingerprint()) !=
      parts.data->fingerprint())
    parts.state->quarantined.clear();
  return maybe_growing_->keep();
}

}  // namespace stoker::daemon_app
