#include "daemon/daemon_app/training_session.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include <ATen/Parallel.h>

#include "daemon/checkpoint/checkpoint_writer.h"
#include "daemon/checkpoint/retainer.h"
#include "daemon/daemon_app/bad_samples_so_far.h"
#include "daemon/daemon_app/batch_check.h"
#include "daemon/daemon_app/first_weights.h"
#include "daemon/daemon_app/growing_data.h"
#include "daemon/daemon_app/load_checkpoint.h"
#include "daemon/daemon_app/profile_files.h"
#include "daemon/daemon_app/rollback.h"
#include "daemon/daemon_app/run_views.h"
#include "daemon/daemon_app/start_point.h"
#include "daemon/daemon_app/version.h"
#include "daemon/daemon_app/weigh_classes.h"
#include "daemon/feeder/feed_supervisor.h"
#include "daemon/train/device.h"
#include "daemon/train/numerics.h"
#include "daemon/train/trainer.h"
#include "shared/base/log.h"
#include "shared/config/load_config.h"
#include "shared/dataset/value_limits.h"
#include "shared/feed/batch_shapes.h"
#include "shared/feed/padding_report.h"
#include "shared/feed/plan_settings.h"
#include "shared/metrics/metrics_writer.h"
#include "shared/model/model_file.h"

namespace stoker::daemon_app {
namespace {

using namespace std::chrono_literals;
constexpr auto kGrace = 10s;  // for writers to end after the last of their work was taken

// Lost rows are no reason to lose a checkpoint.
void flush_rows(metrics::MetricsWriter& rows) {
  if (const Status flushed = rows.flush(kGrace); !flushed.ok())
    log_warn("metrics not written", {{"reason", flushed.to_string()}});
}

// The checkpoint knows how often the run had gone back when it was saved.
void lower_lr(const config::TrainConfig& config, train::TrainingState& state, uint64_t rollbacks) {
  for (; state.rollbacks < rollbacks; ++state.rollbacks) state.lr_scale *= config.rollback_lr;
  log_warn("rolled back",
           {{"to_step", state.step},
            {"time", std::to_string(rollbacks) + "/" + std::to_string(config.nonfinite_limit)},
            {"lr_scale", state.lr_scale},
            {"reason", "loss or gradient not finite"}});
}

}  // namespace

struct TrainingSession::Parts {
  Parts(std::unique_ptr<dataset::Dataset> opened, const dataset::PlanSettings& settings)
      : data(std::move(opened)), plan(settings) {}

  std::unique_ptr<dataset::Dataset> data;
  dataset::SamplePlan plan;
  std::unique_ptr<train::TrainingState> state;
  checkpoint::Manifest manifest;  // what all checkpoints of this run share
  std::optional<metrics::ResumePoint> resume;
  feeder::BadSamplesBefore bad_samples;
  bool save_soon = false;  // or the next start would need to be allowed the same changes
  std::unique_ptr<ring::ShmRing> ring;
  std::unique_ptr<metrics::MetricsWriter> metrics;
  std::unique_ptr<checkpoint::CheckpointStore> store;
  std::unique_ptr<writer::Retainer> retainer;
  std::unique_ptr<writer::CheckpointWriter> writer;
  std::unique_ptr<feeder::FeedSupervisor> feed;
  // Ended in the reverse order: first nobody fills the ring, then everything handed to the writers
  // is written.
  Coordinator writers;
  Coordinator feeders;
  Coordinator watchers;  // of data that grows
};

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
      growing_(feed::grows(config) ? std::make_unique<GrowingData>(config, layout) : nullptr) {}

TrainingSession::~TrainingSession() = default;

// ---- Preparing

Status TrainingSession::check_stop() const {
  return stop_asked_ ? Status(Code::kCancelled, "stopped while starting") : Status();
}

Result<std::unique_ptr<dataset::Dataset>> TrainingSession::open_data(const StartPoint& start) {
  auto progress = [this](uint64_t count, std::string_view what) {
    board_.note_progress();
    set_live_line("indexing data.train: " + std::to_string(count) + ' ' + std::string(what));
  };
  const checkpoint::Manifest* const saved = start ? &start->manifest() : nullptr;
  auto data = growing_ ? growing_->open(saved ? saved->ticket : 0, saved, progress)
                       : dataset::open_dataset("train", config_.data, layout_.index(), progress);
  set_live_line("");
  if (!data.ok()) return data.status();
  log_info("data set opened", {{"set", "train"},
                               {"samples", (*data)->size()},
                               {"fingerprint", (*data)->fingerprint().substr(0, 12)}});
  if (config_.feed.shuffle == config::Shuffle::kShards && (*data)->shard_ends().size() == 1)
    log_warn("feed.shuffle: shards mixes all of data.train", {{"reason", "it is one shard"}});
  STOKER_ASSIGN_OR_RETURN(weights_, feed::read_sample_weights(config_, **data));
  return dataset::within_limits(config_, *std::move(data));
}

Result<std::unique_ptr<TrainingSession::Parts>> TrainingSession::prepare(
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
  const feed::PlanStart began = growing_ ? growing_->plan_start() : feed::PlanStart{};
  STOKER_ASSIGN_OR_RETURN(const auto plan, feed::plan_settings(config_, *data, weights_, began));
  feed::log_padding(*data, plan);
  auto parts = std::make_unique<Parts>(std::move(data), plan);
  parts->store = std::move(store);
  config::Config weighed = config_;
  STOKER_ASSIGN_OR_RETURN(weighed.task, weigh_classes(config_.task, *parts->data, start));
  STOKER_ASSIGN_OR_RETURN(parts->state,
                          train::TrainingState::create(weighed, *parts->data, device));
  STOKER_RETURN_IF_ERROR(restore(*parts, start));
  STOKER_RETURN_IF_ERROR(
      feed::keep_sample_weights(weights_, layout_.index(), parts->state->ticket));
  STOKER_RETURN_IF_ERROR(check_stop());
  STOKER_RETURN_IF_ERROR(open_outputs(*parts));
  STOKER_RETURN_IF_ERROR(start_feed(*parts));
  log_info("training", {{"model", parts->state->model_digest().substr(0, 12)},
                        {"device", device.str()},
                        {"threads", at::get_num_threads()},
                        {"from_step", parts->state->step},
                        {"to_step", config_.train.steps}});
  return parts;
}

Status TrainingSession::restore(Parts& parts, const StartPoint& start) {
  checkpoint::Manifest& manifest = parts.manifest;
  manifest.build = stoker_version();
  manifest.torch = torch_version();
  manifest.batch = static_cast<uint64_t>(config_.train.batch);
  manifest.accumulate = static_cast<uint64_t>(config_.train.accumulate);
  manifest.model_digest = parts.state->model_digest();
  STOKER_ASSIGN_OR_RETURN(manifest.model_file, model::file_digest(config_.model));
  manifest.config_digest = config::digest(config_);
  manifest.data_digest = growing_ && start ? growing_->digest_before(start->manifest().ticket)
                                           : parts.data->fingerprint();
  if (!start) {
    STOKER_RETURN_IF_ERROR(begin_with_weights(*parts.state, config_.model, layout_));
    show_begin(config_, parts.state->model(), layout_, clock_);
    STOKER_RETURN_IF_ERROR(settle_growth(parts, start));
    STOKER_ASSIGN_OR_RETURN(
        parts.bad_samples, bad_samples_so_far(real_files(), layout_.bad_samples_file(), nullptr));
    return write_file_atomically(real_files(), layout_.config_file(), config::to_yaml(config_));
  }

  const auto before = config::load_config(layout_.config_file(), {});
  RunChanges changes;
  if (before.ok()) {
    changes.add_settings(*before, config_);
  } else {
    log_warn("settings of the run so far not readable", {{"reason", before.status().message()}});
  }
  STOKER_ASSIGN_OR_RETURN(parts.save_soon, load_checkpoint(*parts.state, *start, manifest,
                                                           std::move(changes), command_.allowed));
  STOKER_RETURN_IF_ERROR(settle_growth(parts, start));
  const checkpoint::Manifest& saved = start->manifest();
  STOKER_RETURN_IF_ERROR(set_aside_later(real_files(), *parts.store, saved.step));
  STOKER_ASSIGN_OR_RETURN(parts.bad_samples,
                          bad_samples_so_far(real_files(), layout_.bad_samples_file(), &saved));
  manifest.parent = checkpoint::CheckpointStore::name_of(saved.step);
  parts.resume = metrics::ResumePoint{saved.step, saved.metrics_bytes};
  STOKER_ASSIGN_OR_RETURN(const auto rollback, read_rollback(layout_.rollback_file()));
  if (rollback && rollback->to_step == saved.step)
    lower_lr(config_.train, *parts.state, rollback->times);
  log_info("resumed", {{"step", saved.step}, {"path", start->path()}});
  return write_file_atomically(real_files(), layout_.config_file(), config::to_yaml(config_));
}

Status TrainingSession::settle_growth(Parts& parts, const StartPoint& start) {
  if (!growing_) return {};
  parts.manifest.data_history = growing_->history();
  if (start && start->manifest().ticket != parts.state->ticket &&
      parts.manifest.data_history.size() > 1)
    return Status(Code::kMismatch,
                  "train.batch: cannot change in a run whose data has grown: what came joined at "
                  "tickets of the batch before");
  // What readers died of is known by numbers of the samples before.
  if (std::exchange(parts.manifest.data_digest, parts.data->fingerprint()) !=
      parts.data->fingerprint())
    parts.state->quarantined.clear();
  return growing_->keep();
}

Status TrainingSession::open_outputs(Parts& parts) {
  metrics::MetricsWriterSettings settings;
  settings.train_rows = layout_.train_rows();
  if (config_.metrics.tensorboard)
    settings.tensorboard_directory = join_path(layout_.tb(), "train");
  STOKER_ASSIGN_OR_RETURN(
      parts.metrics, metrics::MetricsWriter::open(real_files(), clock_, settings, parts.resume));
  writer::WriterSettings saving;
  parts.retainer = std::make_unique<writer::Retainer>(config_, *parts.store, layout_, clock_);
  saving.retire = [&parts](bool is_short) { parts.retainer->retire(is_short); };
  // A checkpoint that is there means that the rows and bad samples up to its step are, too.
  saving.before_commit = [&parts] {
    flush_rows(*parts.metrics);
    parts.feed->flush_bad_samples();
  };
  STOKER_ASSIGN_OR_RETURN(saving.pinning, train::pinning_of(parts.state->device()));
  parts.writer =
      std::make_unique<writer::CheckpointWriter>(*parts.store, std::move(saving), clock_);
  parts.writers.start("metrics",
                      [&parts](std::stop_token stop) { return parts.metrics->run(stop); });
  parts.writers.start("checkpoints",
                      [&parts](std::stop_token stop) { return parts.writer->run(stop); });
  return {};
}

Status TrainingSession::start_feed(Parts& parts) {
  const ring::BatchLayout batch(parts.data->spec(), static_cast<uint64_t>(config_.train.batch));
  ring::RingSettings settings;
  settings.slots = static_cast<uint64_t>(config_.feed.slots);
  settings.first_ticket = parts.state->ticket;
  const uint64_t left = config_.train.steps - std::min(parts.state->step, config_.train.steps);
  settings.end_ticket =
      settings.first_ticket + left * static_cast<uint64_t>(config_.train.accumulate);
  STOKER_ASSIGN_OR_RETURN(parts.ring, ring::ShmRing::create(batch, settings));
  feeder::FeedSettings feed;
  feed.feed = config_.feed;
  feed.config_path = layout_.config_file();
  feed.index_dir = growing_ ? growing_->index_dir() : layout_.index();
  feed.bad_sample_path = layout_.bad_samples_file();
  feed.bad_samples = parts.bad_samples;
  feed.bad_samples.ticket = settings.first_ticket;
  feed.bad_samples.tickets_a_step = static_cast<uint64_t>(config_.train.accumulate);
  feed.quarantined = parts.state->quarantined;
  parts.feed = std::make_unique<feeder::FeedSupervisor>(std::move(feed), *parts.ring, *parts.data,
                                                        parts.plan, parts.feeders, clock_);
  STOKER_RETURN_IF_ERROR(parts.feed->start());
  if (growing_) growing_->watch(*parts.data, parts.watchers);
  return {};
}

// ---- Training

Result<Outcome> TrainingSession::run(std::stop_token stop,
                                     const std::function<void()>& on_training) {
  std::string resume = command_.resume;
  std::unique_ptr<dataset::Dataset> data;  // kept while nothing can have come to it
  if (!growing_) {
    STOKER_ASSIGN_OR_RETURN(data, open_data(std::nullopt));
  }
  for (bool first = true;; first = false) {
    auto prepared = prepare(std::move(data), resume);
    if (!prepared.ok()) {
      if (prepared.status().code() == Code::kCancelled) return Outcome::kStopped;
      return prepared.status();
    }
    Parts& parts = *hold(*std::move(prepared));
    if (first) on_training();
    const auto ended = train(parts, stop);
    const Status wound_up = wind_up(parts);
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
Status TrainingSession::go_on(Parts& parts, Ended ended) {
  if (ended == Ended::kNewData) return growing_->take_in(parts.state->ticket, parts.plan);
  std::optional<uint64_t> begun_at;
  if (parts.resume) begun_at = parts.resume->step;
  return go_back(real_files(), *parts.store, layout_.rollback_file(), begun_at,
                 parts.state->rollbacks);
}

TrainingSession::Parts* TrainingSession::hold(std::unique_ptr<Parts> parts) {
  const std::lock_guard lock(mutex_);
  parts_.swap(parts);
  return parts_.get();
}

Result<TrainingSession::Ended> TrainingSession::train(Parts& parts, std::stop_token stop) {
  // Readers that fail for good end the data: the trainer saves what it has and leaves.
  const std::stop_callback feed_failed(parts.feeders.token(), [&parts] { parts.ring->close(); });
  train::TrainerLinks links{
      *parts.ring,
      parts.plan,
      *parts.writer,
      mailbox_,
      board_,
      clock_,
      [&parts](const metrics::TrainRow& row) { return parts.metrics->report(row); },
      [&parts] { return parts.feed->quarantined(); },
      parts.manifest,
      parts.metrics->position(),
      parts.save_soon,
      {.save_profile =
           [&parts, this](train::TakenProfile taken, train::Request request) {
             save_profile(*parts.metrics, layout_, std::move(taken), std::move(request));
           },
       .maybe_taps = &taps_,
       .histogram_steps = config_.metrics.tensorboard ? config_.metrics.histogram_steps : 0,
       .save_histograms =
           [&parts](uint64_t step, std::vector<metrics::NamedSummary> summaries) {
             parts.metrics->report_histograms(step, std::move(summaries));
           }},
      [this, &parts](uint64_t ticket) {
        return growing_ && growing_->is_new_at(ticket, parts.plan);
      },
      {},
      feed::BatchShapes(*parts.data, parts.plan),
      first_batch_view(config_, *parts.data, parts.plan, *parts.metrics),
      [&parts,
       check = batch_check(config_, *parts.data, *parts.ring)](const ring::ReadyBatch& batch) {
        const Status fit = check ? check(batch) : Status();
        if (!fit.ok()) parts.feeders.request_stop(fit);
        return fit.ok();
      },
      [&parts](uint64_t ticket) { return parts.feed->bad_samples_before(ticket); }};
  const uint64_t began_at = parts.state->step;
  train::Trainer trainer(config_, *parts.state, std::move(links));
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

Status TrainingSession::wind_up(Parts& parts) {
  parts.feed->stop();
  parts.feeders.request_stop();
  parts.watchers.request_stop();
  Status feed = parts.feeders.join(kGrace);
  if (const Status watched = parts.watchers.join(kGrace); feed.ok()) feed = watched;
  flush_rows(*parts.metrics);
  parts.writers.request_stop();
  const Status written = parts.writers.join(kGrace);
  return feed.ok() ? written : feed;
}

void TrainingSession::add_live(control::TrainerStatus& status) const {
  const std::lock_guard lock(mutex_);
  if (!parts_) return;
  const ring::RingCounters counters = parts_->ring->counters();
  status.feed.ready_slots = counters.ready;
  status.feed.slots = parts_->ring->slots();
  status.feed.bad_samples = parts_->feed->bad_samples();
  status.feed.reissued = counters.reissued;
  status.feed.readers = parts_->feed->live_readers();
  const feeder::FeedActivity::Busy busy = parts_->feed->busy();
  status.feed.reading = busy.reading;
  status.feed.decoding = busy.decoding;
  status.feed.transforming = busy.transforming;
  status.feed.waiting = busy.waiting;
  status.feed.deaths = parts_->feed->deaths();
  status.feed.hangs = parts_->feed->hangs();
  status.feed.outside = parts_->feed->outside_producers();
  const auto saved = parts_->writer->stats();
  status.checkpoint.last_step = std::max(status.checkpoint.last_step, saved.last_step);
  status.checkpoint.in_flight = saved.in_flight;
  status.checkpoint.saved = saved.saved;
  status.checkpoint.failures = saved.failures;
  status.checkpoint.skipped = saved.skipped;
  status.checkpoint.last_error = saved.last_error;
  // Known here before the trainer, which looks when it reports.
  const bool trains = status.state == control::TrainerState::kTraining ||
                      status.state == control::TrainerState::kSaving;
  if (saved.degraded && trains) status.state = control::TrainerState::kDegraded;
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
