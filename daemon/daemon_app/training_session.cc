#include "daemon/daemon_app/training_session.h"

#include <utility>

#include "daemon/daemon_app/batch_check.h"
#include "daemon/daemon_app/growing_data.h"
#include "daemon/daemon_app/profile_files.h"
#include "daemon/daemon_app/rollback.h"
#include "daemon/daemon_app/run_views.h"
#include "daemon/daemon_app/training_parts.h"
#include "daemon/daemon_app/training_preparation.h"
#include "daemon/train/trainer.h"
#include "shared/feed/batch_shapes.h"

namespace stoker::daemon_app {

TrainingSession::TrainingSession(const config::Config& config, const CommandLine& command,
                                 const run::RunLayout& layout, train::Mailbox& mailbox,
                                 train::StatusBoard& board, Clock& clock)
    : config_(config),
      command_(command),
      layout_(layout),
      mailbox_(mailbox),
      board_(board),
      clock_(clock),
      taps_(clock),
      growing_(feed::grows(config) ? std::make_unique<GrowingData>(config, layout) : nullptr),
      preparation_(std::make_unique<TrainingPreparation>(config, command, layout, growing_.get(),
                                                         board, clock)) {}

TrainingSession::~TrainingSession() = default;

// ---- One trainer after another

Result<Outcome> TrainingSession::run(std::stop_token stop,
                                     const std::function<void()>& on_training) {
  std::string resume = command_.resume;
  std::unique_ptr<dataset::Dataset> data;  // kept while nothing can have come to it
  if (!growing_) {
    STOKER_ASSIGN_OR_RETURN(data, preparation_->open_data());
  }
  for (bool first = true;; first = false) {
    auto prepared = preparation_->prepare(std::move(data), resume);
    if (!prepared.ok()) {
      if (prepared.status().code() == Code::kCancelled) return Outcome::kStopped;
      return prepared.status();
    }
    TrainingParts& parts = *hold(*std::move(prepared));
    if (first) {
      board_.set_step(parts.state->step);
      on_training();
    }
    const auto ended = train(parts, stop);
    const Status wound_up = parts.wind_up();
    if (!ended.ok()) return ended.status();
    if (!wound_up.ok()) return wound_up;
    if (*ended == Ended::kFinished) return Outcome::kFinished;
    if (*ended == Ended::kStopped) return Outcome::kStopped;
    STOKER_RETURN_IF_ERROR(go_on(parts, *ended));
    resume.clear();  // to where the run began before: what it saved since counts now
    if (!growing_) data = std::move(parts.data);
    hold(nullptr);
  }
}

// What has to be done before the next parts are prepared.
Status TrainingSession::go_on(TrainingParts& parts, Ended ended) {
  if (ended == Ended::kNewData) return growing_->take_in(parts.state->ticket, parts.plan);
  std::optional<uint64_t> begun_at;
  if (parts.resume) begun_at = parts.resume->step;
  return go_back(real_files(), *parts.store, layout_.rollback_file(), begun_at,
                 parts.state->rollbacks);
}

TrainingParts* TrainingSession::hold(std::unique_ptr<TrainingParts> parts) {
  const std::lock_guard lock(mutex_);
  parts_.swap(parts);
  return parts_.get();
}

// ---- One trainer

Result<TrainingSession::Ended> TrainingSession::train(TrainingParts& parts, std::stop_token stop) {
  // Readers that fail for good end the data: the trainer saves what it has and leaves.
  const std::stop_callback feed_failed(parts.feeders.token(), [&parts] { parts.ring->close(); });
  const uint64_t began_at = parts.state->step;
  train::Trainer trainer(config_, *parts.state, links(parts));
  const auto outcome = trainer.run(stop);
  if (const Status feed = parts.feeders.reason(); !feed.ok()) return feed.with_context("feed");
  if (!outcome.ok()) return outcome.status();
  switch (*outcome) {
    case train::Trainer::Outcome::kFinished:
      if (began_at < parts.state->step) show_end(config_, layout_, clock_);
      return Ended::kFinished;
    case train::Trainer::Outcome::kStopped:
      return Ended::kStopped;
    case train::Trainer::Outcome::kRollBack:
      return Ended::kRollBack;
    case train::Trainer::Outcome::kNewData:
      return Ended::kNewData;
  }
  return Status(Code::kInternal, "training ended without an outcome");
}

train::TrainerLinks TrainingSession::links(TrainingParts& parts) {
  auto may_use = [&parts, check = batch_check(config_, *parts.data, *parts.ring)](
                     const ring::ReadyBatch& batch) {
    const Status fit = check ? check(batch) : Status();
    if (!fit.ok()) parts.feeders.request_stop(fit);
    return fit.ok();
  };
  return {.ring = *parts.ring,
          .plan = parts.plan,
          .writer = *parts.writer,
          .mailbox = mailbox_,
          .board = board_,
          .clock = clock_,
          .report = [&parts](const metrics::TrainRow& row) { return parts.metrics->report(row); },
          .quarantined = [&parts] { return parts.feed->quarantined(); },
          .manifest = parts.manifest,
          .metrics_bytes = parts.metrics->position(),
          .save_soon = parts.save_soon,
          .watch = watch_links(parts),
          .is_new_data =
              [this, &parts](uint64_t ticket) {
                return growing_ && growing_->is_new_at(ticket, parts.plan);
              },
          .maybe_shapes = feed::BatchShapes(*parts.data, parts.plan),
          .see_first_batch = first_batch_view(config_, *parts.data, parts.plan, *parts.metrics),
          .may_use = std::move(may_use),
          .bad_samples_before =
              [&parts](uint64_t ticket) { return parts.feed->bad_samples_before(ticket); }};
}

train::WatchLinks TrainingSession::watch_links(TrainingParts& parts) {
  return {.save_profile =
              [&parts, this](train::TakenProfile taken, train::Request request) {
                save_profile(*parts.metrics, layout_, std::move(taken), std::move(request));
              },
          .maybe_taps = &taps_,
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

Result<feeder::Attachment> TrainingSession::attach(feeder::OutsideProcess process) {
  const std::lock_guard lock(mutex_);
  if (!parts_) return Status(Code::kBusy, "training is being prepared; try again when it trains");
  return parts_->feed->attach(std::move(process));
}

bool TrainingSession::prepared() const {
  const std::lock_guard lock(mutex_);
  return parts_ != nullptr;
}

}  // namespace stoker::daemon_app
