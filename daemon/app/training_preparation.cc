#include "daemon/app/training_preparation.h"

#include <utility>

#include <ATen/Parallel.h>

#include "daemon/app/compute_class_weights.h"
#include "daemon/app/dataset_refresher.h"
#include "daemon/app/load_checkpoint.h"
#include "daemon/app/load_pretrained_weights.h"
#include "daemon/app/reduce_learning_rate.h"
#include "daemon/app/restore_sample_errors.h"
#include "daemon/app/resume_checkpoint.h"
#include "daemon/app/tensorboard_summary.h"
#include "daemon/app/version.h"
#include "daemon/train/device.h"
#include "daemon/train/numerics.h"
#include "shared/base/log.h"
#include "shared/config/load_config.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/data/record/label_range_check.h"
#include "shared/feed/make_sample_plan.h"
#include "shared/model/model_file.h"

namespace stoker::app {

TrainingPreparation::TrainingPreparation(const config::Config& config, const CommandLine& command,
                                         const run::RunLayout& layout,
                                         DatasetRefresher* maybe_refresher,
                                         train::StatusBoard& board, Clock& clock)
    : config_(config),
      command_(command),
      layout_(layout),
      maybe_refresher_(maybe_refresher),
      board_(board),
      clock_(clock) {}

Status TrainingPreparation::check_stop() const {
  return stop_requested_ ? Status(StatusCode::kCancelled, "startup cancelled") : Status();
}

Result<std::unique_ptr<data::Dataset>> TrainingPreparation::open_data(const StartPoint& start) {
  auto progress = [this](uint64_t count, std::string_view what) {
    board_.record_progress();
    set_progress_line("indexing data.train: " + std::to_string(count) + ' ' + std::string(what));
  };
  const checkpoint::Manifest* const saved = start ? &start->manifest() : nullptr;
  auto data = maybe_refresher_ ? maybe_refresher_->open(saved ? saved->ticket : 0, saved, progress)
                               : data::pipeline::open_dataset("train", config_.data,
                                                              layout_.index_dir(), progress);
  set_progress_line("");
  if (!data.ok()) return data.status();
  log_info("dataset opened", {{"dataset", "train"},
                              {"samples", (*data)->size()},
                              {"fingerprint", (*data)->fingerprint().substr(0, 12)}});
  if (config_.feed.shuffle == config::ShuffleMode::kShards && (*data)->shard_ends().size() == 1)
    log_warn("shard shuffle not effective", {{"reason", "data.train is one shard"}});
  STOKER_ASSIGN_OR_RETURN(weights_, feed::read_sample_weights(config_, **data));
  return data::record::with_range_check(config_, *std::move(data));
}

Result<std::unique_ptr<TrainingParts>> TrainingPreparation::prepare(
    std::unique_ptr<data::Dataset> data, const std::string& resume) {
  STOKER_RETURN_IF_ERROR(check_stop());
  train::prepare_environment(config_.run);
  STOKER_ASSIGN_OR_RETURN(const c10::Device device, train::open_device(config_.train.device));
  train::configure_numerics(config_.run, config_.train);
  auto store = std::make_unique<checkpoint::CheckpointStore>(layout_.checkpoints_dir(),
                                                             default_file_system());
  STOKER_RETURN_IF_ERROR(store->clean_up());
  STOKER_ASSIGN_OR_RETURN(const StartPoint start, find_resume_checkpoint(*store, resume));
  if (!data) {
    STOKER_ASSIGN_OR_RETURN(data, open_data(start));
  }
  STOKER_ASSIGN_OR_RETURN(auto parts, make_parts(std::move(data), start, device));
  parts->store = std::move(store);
  STOKER_RETURN_IF_ERROR(describe(*parts, start));
  STOKER_RETURN_IF_ERROR(start ? continue_training(*parts, *start) : begin(*parts));
  STOKER_RETURN_IF_ERROR(write_file_atomically(default_file_system(), layout_.config_file(),
                                               config::to_yaml(config_)));
  STOKER_RETURN_IF_ERROR(
      feed::snapshot_sample_weights(weights_, layout_.index_dir(), parts->state->ticket));
  STOKER_RETURN_IF_ERROR(check_stop());
  STOKER_RETURN_IF_ERROR(parts->open_outputs(config_, layout_, clock_));
  STOKER_RETURN_IF_ERROR(parts->start_feed(
      config_, layout_, maybe_refresher_ ? maybe_refresher_->index_dir() : layout_.index_dir(),
      clock_));
  if (maybe_refresher_) maybe_refresher_->watch(*parts->data, parts->watchers);
  log_info("training started", {{"model_digest", parts->state->model_digest().substr(0, 12)},
                                {"device", device.str()},
                                {"num_threads", at::get_num_threads()},
                                {"start_step", parts->state->step},
                                {"max_steps", config_.train.max_steps}});
  return parts;
}

Result<std::unique_ptr<TrainingParts>> TrainingPreparation::make_parts(
    std::unique_ptr<data::Dataset> data, const StartPoint& start, c10::Device device) {
  const feed::PlanStart began =
      maybe_refresher_ ? maybe_refresher_->plan_start() : feed::PlanStart{};
  STOKER_ASSIGN_OR_RETURN(const auto plan,
                          feed::make_plan_options(config_, *data, weights_, began));
  feed::log_padding_ratio(*data, plan);
  auto parts = std::make_unique<TrainingParts>(std::move(data), plan);
  config::Config weighed = config_;
  STOKER_ASSIGN_OR_RETURN(weighed.task, compute_class_weights(config_.task, *parts->data, start));
  STOKER_ASSIGN_OR_RETURN(parts->state,
                          train::TrainingState::create(weighed, *parts->data, device));
  return parts;
}

// What the checkpoints of this run are going to say of themselves.
Status TrainingPreparation::describe(TrainingParts& parts, const StartPoint& start) const {
  checkpoint::Manifest& manifest = parts.manifest;
  manifest.stoker_version = stoker_version();
  manifest.torch_version = torch_version();
  manifest.batch = static_cast<uint64_t>(config_.train.micro_batch_size);
  manifest.accumulate = static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
  manifest.model_digest = parts.state->model_digest();
  STOKER_ASSIGN_OR_RETURN(manifest.model_file, model::file_digest(config_.model));
  manifest.config_digest = config::digest(config_);
  manifest.data_digest = maybe_refresher_ && start
                             ? maybe_refresher_->fingerprint_before(start->manifest().ticket)
                             : parts.data->fingerprint();
  return {};
}

Status TrainingPreparation::begin(TrainingParts& parts) {
  STOKER_RETURN_IF_ERROR(load_pretrained_weights(*parts.state, config_.model, layout_));
  write_start_summary(config_, parts.state->model(), layout_, clock_);
  STOKER_RETURN_IF_ERROR(resolve_dataset_version(parts, nullptr));
  STOKER_ASSIGN_OR_RETURN(
      parts.sample_errors,
      restore_sample_errors(default_file_system(), layout_.sample_errors_file(), nullptr));
  return {};
}

Status TrainingPreparation::continue_training(TrainingParts& parts,
                                              const checkpoint::VerifiedCheckpoint& start) {
  const checkpoint::Manifest& saved = start.manifest();
  STOKER_ASSIGN_OR_RETURN(
      parts.save_after_resume,
      load_checkpoint(*parts.state, start, parts.manifest, changed_config(), command_.allowed));
  STOKER_RETURN_IF_ERROR(resolve_dataset_version(parts, &saved));
  STOKER_RETURN_IF_ERROR(
      archive_later_checkpoints(default_file_system(), *parts.store, saved.step));
  STOKER_ASSIGN_OR_RETURN(
      parts.sample_errors,
      restore_sample_errors(default_file_system(), layout_.sample_errors_file(), &saved));
  parts.manifest.parent = checkpoint::CheckpointStore::checkpoint_name(saved.step);
  parts.resume = metrics::ResumePosition{saved.step, saved.metrics_bytes};
  STOKER_RETURN_IF_ERROR(
      reduce_learning_rate(layout_.rollback_file(), config_.train, saved.step, *parts.state));
  log_info("run resumed", {{"step", saved.step}, {"checkpoint", start.path()}});
  return {};
}

ResumeCompatibility TrainingPreparation::changed_config() const {
  ResumeCompatibility changes;
  const auto before = config::load_config(layout_.config_file(), {});
  if (before.ok()) {
    changes.add_config(*before, config_);
  } else {
    log_warn("previous configuration unreadable", {{"error", before.status().message()}});
  }
  return changes;
}

Status TrainingPreparation::resolve_dataset_version(TrainingParts& parts,
                                                    const checkpoint::Manifest* maybe_saved) {
  if (!maybe_refresher_) return {};
  parts.manifest.dataset_versions = maybe_refresher_->history();
  if (maybe_saved && maybe_saved->ticket != parts.state->ticket &&
      parts.manifest.dataset_versions.size() > 1)
    return Status(
        StatusCode::kMismatch,
        "train.micro_batch_size: cannot change in a run whose data has grown: what came joined at "
        "tickets of the batch before");
  // What readers died of is known by numbers of the samples before.
  if (std::exchange(parts.manifest.data_digest, parts.data->fingerprint()) !=
      parts.data->fingerprint())
    parts.state->quarantined.clear();
  return maybe_refresher_->save();
}

}  // namespace stoker::app
