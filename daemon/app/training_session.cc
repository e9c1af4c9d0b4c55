#include "daemon/app/training_session.h"

#include <utility>

#include "daemon/app/dataset_refresher.h"
#include "daemon/app/profile_writer.h"
#include "daemon/app/rollback.h"
#include "daemon/app/tensorboard_summary.h"
#include "daemon/app/training_parts.h"
#include "daemon/app/training_preparation.h"
#include "daemon/app/validate_batch.h"
#include "daemon/train/trainer.h"
#include "shared/feed/batch_shapes.h"

namespace stoker::app {

TrainingSession::TrainingSession(const config::Config& config, const CommandLine& command,
                                 const run::RunLayout& layout, train::Mailbox& mailbox,
                                 train::StatusBoard& board, Clock& clock)
    : config_(config),
      command_(command),
      layout_(layout),
      mailbox_(mailbox),
      board_(board),
      clock_(clock),
      inspections_(clock),
      refresher_(feed::is_refreshable(config) ? std::make_unique<DatasetRefresher>(config, layout)
                                              : nullptr),
      preparation_(std::make_unique<TrainingPreparation>(config, command, layout, refresher_.get(),
                                                         board, clock)) {}

TrainingSession::~TrainingSession() = default;

// ---- One trainer after another

Result<run::RunOutcome> TrainingSession::run(std::stop_token stop,
                                             const std::function<void()>& on_training) {
  std::string resume = command_.resume;
  std::unique_ptr<data::Dataset> data;  // kept while nothing can have come to it
  if (!refresher_) {
    STOKER_ASSIGN_OR_RETURN(data, preparation_->open_data());
  }
  for (bool first = true;; first = false) {
    auto prepared = preparation_->prepare(std::move(data), resume);
    if (!prepared.ok()) {
      if (prepared.status().code() == StatusCode::kCancelled) return run::RunOutcome::kStopped;
      return prepared.status();
    }
    TrainingParts& parts = *publish_components(*std::move(prepared));
    if (first) {
      board_.set_step(parts.state->step);
      on_training();
    }
    const auto outcome = train(parts, stop);
    const Status shut_down = parts.shut_down();
    if (!outcome.ok()) return outcome.status();
    if (!shut_down.ok()) return shut_down;
    switch (*outcome) {
      case train::TrainerOutcome::kFinished:
        return run::RunOutcome::kFinished;
      case train::TrainerOutcome::kStopped:
        return run::RunOutcome::kStopped;
      case train::TrainerOutcome::kRolledBack:
        STOKER_RETURN_IF_ERROR(roll_back_to_checkpoint(parts));
        break;
      case train::TrainerOutcome::kNewData:
        STOKER_RETURN_IF_ERROR(refresher_->apply_refresh(parts.state->ticket, parts.plan));
        break;
    }
    resume.clear();  // to where the run began before: what it saved since counts now
    if (!refresher_) data = std::move(parts.data);
    publish_components(nullptr);
  }
}

Status TrainingSession::roll_back_to_checkpoint(TrainingParts& parts) {
  std::optional<uint64_t> begun_at;
  if (parts.resume) begun_at = parts.resume->step;
  return roll_back(default_file_system(), *parts.store, layout_.rollback_file(), begun_at,
                   parts.state->rollbacks);
}

TrainingParts* TrainingSession::publish_components(std::unique_ptr<TrainingParts> parts) {
  const std::lock_guard lock(mutex_);
  parts_.swap(parts);
  return parts_.get();
}

// ---- One trainer

Result<train::TrainerOutcome> TrainingSession::train(TrainingParts& parts, std::stop_token stop) {
  // Readers that fail for good end the data: the trainer saves what it has and leaves.
  const std::stop_callback feed_failed(parts.feeders.token(), [&parts] { parts.ring->close(); });
  const uint64_t began_at = parts.state->step;
  train::Trainer trainer(config_, *parts.state, dependencies(parts));
  const auto outcome = trainer.run(stop);
  if (const Status feed = parts.feeders.reason(); !feed.ok()) return feed.with_context("feed");
  const bool has_finished = outcome.ok() && *outcome == train::TrainerOutcome::kFinished;
  if (has_finished && began_at < parts.state->step) write_end_summary(config_, layout_, clock_);
  return outcome;
}

train::TrainerDependencies TrainingSession::dependencies(TrainingParts& parts) {
  auto is_valid_batch = [&parts, check = validate_batch(config_, *parts.data, *parts.ring)](
                            const ring::ReadyBatch& batch) {
    const Status fit = check ? check(batch) : Status();
    if (!fit.ok()) parts.feeders.request_stop(fit);
    return fit.ok();
  };
  return {
      .ring = *parts.ring,
      .plan = parts.plan,
      .writer = *parts.writer,
      .mailbox = mailbox_,
      .board = board_,
      .clock = clock_,
      .report = [&parts](const metrics::TrainMetrics& row) { return parts.metrics->report(row); },
      .quarantined = [&parts] { return parts.feed->quarantined(); },
      .manifest = parts.manifest,
      .metrics_bytes = parts.metrics->position(),
      .save_after_resume = parts.save_after_resume,
      .watch = inspection_dependencies(parts),
      .is_new_data =
          [this, &parts](uint64_t ticket) {
            return refresher_ && refresher_->has_new_version_at(ticket, parts.plan);
          },
      .maybe_shapes = feed::BatchShapes(*parts.data, parts.plan),
      .on_first_batch = first_batch_summarizer(config_, *parts.data, parts.plan, *parts.metrics),
      .is_valid_batch = std::move(is_valid_batch),
      .sample_errors_before =
          [&parts](uint64_t ticket) { return parts.feed->sample_errors_before(ticket); }};
}

train::InspectionDependencies TrainingSession::inspection_dependencies(TrainingParts& parts) {
  return {.save_profile =
              [&parts, this](train::TakenProfile taken, train::Done done) {
                save_profile(*parts.metrics, layout_, std::move(taken), std::move(done));
              },
          .maybe_inspections = &inspections_,
          .histogram_steps =
              config_.metrics.tensorboard ? config_.metrics.histogram_every_steps.value_or(0) : 0,
          .save_histograms =
              [&parts](uint64_t step, std::vector<metrics::NamedSummary> summaries) {
                parts.metrics->report_histograms(step, std::move(summaries));
              }};
}

// ---- Asked from outside

void TrainingSession::request_stop() { preparation_->request_stop(); }

void TrainingSession::add_live(control::TrainerStatus& status) const {
  const std::lock_guard lock(mutex_);
  if (parts_) parts_->add_live(status);
}

Result<supervisor::Attachment> TrainingSession::attach(supervisor::ExternalProcess process) {
  const std::lock_guard lock(mutex_);
  if (!parts_)
    return Status(StatusCode::kBusy, "training is being prepared; try again when it trains");
  return parts_->feed->attach(std::move(process));
}

bool TrainingSession::prepared() const {
  const std::lock_guard lock(mutex_);
  return parts_ != nullptr;
}

}  // namespace stoker::app
