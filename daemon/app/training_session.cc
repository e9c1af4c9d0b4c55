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

Result<Outcome> TrainingSession::run(std::stop_token stop,
                                     const std::function<void()>& on_training) {
  std::string resume = command_.resume;
  std::unique_ptr<dataset::Dataset> data;  // kept while nothing can have come to it
  if (!refresher_) {
    STOKER_ASSIGN_OR_RETURN(data, preparation_->open_data());
  }
  for (bool first = true;; first = false) {
    auto prepared = preparation_->prepare(std::move(data), resume);
    if (!prepared.ok()) {
      if (prepared.status().code() == StatusCode::kCancelled) return Outcome::kStopped;
      return prepared.status();
    }
    TrainingParts& parts = *publish_components(*std::move(prepared));
    if (first) {
      board_.set_step(parts.state->step);
      on_training();
    }
    const auto ended = train(parts, stop);
    const Status wound_up = parts.shut_down();
    if (!ended.ok()) return ended.status();
    if (!wound_up.ok()) return wound_up;
    if (*ended == Ended::kFinished) return Outcome::kFinished;
    if (*ended == Ended::kStopped) return Outcome::kStopped;
    STOKER_RETURN_IF_ERROR(continue_training(parts, *ended));
    resume.clear();  // to where the run began before: what it saved since counts now
    if (!refresher_) data = std::move(parts.data);
    publish_components(nullptr);
  }
}

// What has to be done before the next parts are prepared.
Status TrainingSession::continue_training(TrainingParts& parts, Ended ended) {
  if (ended == Ended::kNewData) return refresher_->apply_refresh(parts.state->ticket, parts.plan);
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

Result<TrainingSession::Ended> TrainingSession::train(TrainingParts& parts, std::stop_token stop) {
  // Readers that fail for good end the data: the trainer saves what it has and leaves.
  const std::stop_callback feed_failed(parts.feeders.token(), [&parts] { parts.ring->close(); });
  const uint64_t began_at = parts.state->step;
  train::Trainer trainer(config_, *parts.state, dependencies(parts));
  const auto outcome = trainer.run(stop);
  if (const Status feed = parts.feeders.reason(); !feed.ok()) return feed.with_context("feed");
  if (!outcome.ok()) return outcome.status();
  switch (*outcome) {
    case train::Trainer::Outcome::kFinished:
      if (began_at < parts.state->step) write_end_summary(config_, layout_, clock_);
      return Ended::kFinished;
    case train::Trainer::Outcome::kStopped:
      return Ended::kStopped;
    case train::Trainer::Outcome::kRolledBack:
      return Ended::kRolledBack;
    case train::Trainer::Outcome::kNewData:
      return Ended::kNewData;
  }
  return Status(StatusCode::kInternal, "training ended without an outcome");
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
              [&parts, this](train::TakenProfile taken, train::Request request) {
                save_profile(*parts.metrics, layout_, std::move(taken), std::move(request));
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
