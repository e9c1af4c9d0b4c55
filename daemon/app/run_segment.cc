#include "daemon/app/run_segment.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include <ATen/Parallel.h>

#include "daemon/app/dataset_refresher.h"
#include "daemon/app/rollback.h"
#include "daemon/app/stream_data.h"
#include "daemon/app/stream_history_file.h"
#include "daemon/app/validate_batch.h"
#include "daemon/train/device.h"
#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/feed/make_sample_plan.h"

namespace stoker::app {
namespace {

using namespace std::chrono_literals;
constexpr std::string_view kLogLevel = "log.level";
constexpr auto kGrace = 10s;  // for the threads to exit after their last work item

}  // namespace

RunSegment::RunSegment(const config::Config& config, const RunFiles& files,
                       DatasetRefresher* maybe_refresher, Clock& clock, SegmentStart start,
                       group::ProcessGroup* maybe_group)
    : number_(start.number),
      configured_(config),
      config_(std::move(start.config)),
      layout_(files.run),
      rank_layout_(files.rank),
      maybe_group_(maybe_group),
      maybe_refresher_(maybe_refresher),
      clock_(clock),
      data_(std::move(start.data)),
      plan_(std::move(start.plan)),
      state_(std::move(start.state)),
      store_(std::move(start.store)),
      maybe_stream_input_(start.maybe_stream_input),
      continues_stream_(start.continues_stream),
      metric_table_(std::move(start.metric_table)),
      manifest_(std::move(start.manifest)),
      resume_(start.resume),
      sample_errors_(start.sample_errors),
      save_after_resume_(start.save_after_resume),
      is_saved_(start.is_saved) {}

// ---- Start

void set_live_log_level(const config::LiveSettings& settings, const config::Config& config,
                        const config::SettingChange& change) {
  const bool is_set =
      std::ranges::any_of(settings, [](const auto& setting) { return setting.key == kLogLevel; });
  if (change.key == kLogLevel || (change.key.empty() && is_set)) set_log_level(config.log.level);
}

void log_training(const config::Config& config, const train::TrainingState& state) {
  log_info("training started", {{"model_digest", state.model_digest().substr(0, 12)},
                                {"device", state.device().str()},
                                {"num_threads", at::get_num_threads()},
                                {"start_step", state.step},
                                {"max_steps", config.train.max_steps}});
}

Status RunSegment::open() {
  set_live_log_level(state_->settings, config_, {});
  STOKER_RETURN_IF_ERROR(open_outputs());
  STOKER_RETURN_IF_ERROR(start_feed());
  if (maybe_refresher_ && is_chief())
    maybe_refresher_->watch(*data::indexed_part(data_), watchers_);
  log_training(config_, *state_);
  return {};
}

// Metrics and checkpoints, from the position of `resume_` on.
Status RunSegment::open_outputs() {
  outputs_ = std::make_unique<RunOutputs>(config_, layout_, data::info_of(data_), *store_,
                                          metric_table_, clock_);
  if (is_chief())
    STOKER_RETURN_IF_ERROR(outputs_->open_records(state_->training_metrics(), resume_));
  writer::WriterOptions saving = outputs_->writer_options();
  // If a checkpoint exists, so do the records and sample errors up to its step.
  saving.before_commit = [this, before = std::move(saving.before_commit)]() -> Status {
    if (maybe_group_ != nullptr) STOKER_RETURN_IF_ERROR(maybe_group_->check_newest());
    STOKER_RETURN_IF_ERROR(before());
    feed_->flush_sample_errors();
    return {};
  };
  saving.after_commit =
      [this, after = std::move(saving.after_commit)](const checkpoint::Manifest& committed) {
        after(committed);
        if (config::training_stream(config_))
          archive_finished_files(
              config_, join_path(store_->directory(),
                                 checkpoint::CheckpointStore::checkpoint_name(committed.step)));
      };
  if (state_->optimizer().is_sharded()) share_commits(saving);
  STOKER_ASSIGN_OR_RETURN(saving.pinned_allocator,
                          train::make_pinned_allocator(config_.train.device, state_->device()));
  outputs_->start(std::move(saving));
  return {};
}

// Each rank writes its part of a checkpoint, the chief commits it.
void RunSegment::share_commits(writer::WriterOptions& saving) {
  train::ShardedCommitOptions options{.segment = number_};
  options.timeout = std::chrono::milliseconds(
      static_cast<int64_t>(1e3 * config_.distributed.start_timeout_seconds));
  sharded_commit_ = std::make_unique<train::ShardedCommit>(*maybe_group_, *store_,
                                                           default_file_system(), options);
  saving.commit = [this](const checkpoint::CheckpointContent& content,
                         const std::stop_token& stop) {
    if (!is_chief()) feed_->flush_sample_errors();
    return sharded_commit_->commit(content, stop);
  };
  saving.after_attempts = [this](const auto& result, const std::stop_token& stop) {
    sharded_commit_->announce(result, stop);
  };
  if (is_chief()) return;
  // The rest is the chief's, also what follows an error.
  saving.delete_expired = [](bool) {};
  saving.before_commit = {};
  saving.after_commit = {};
  saving.delays.clear();
}

ring::TicketShare RunSegment::share() const {
  ring::TicketShare share{.tickets_per_step =
                              static_cast<uint64_t>(config_.train.gradient_accumulation_steps)};
  if (maybe_group_ == nullptr) return share;
  share.rank = static_cast<uint64_t>(maybe_group_->rank());
  share.world_size = static_cast<uint64_t>(maybe_group_->world_size());
  return share;
}

// Ring and workers, from the ticket of the state on.
Status RunSegment::start_feed() {
  const ring::BatchLayout batch(data::info_of(data_).spec,
                                static_cast<uint64_t>(config_.train.micro_batch_size));
  const auto tickets_per_step = static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
  const uint64_t remaining =
      config_.train.max_steps - std::min(state_->step, config_.train.max_steps);
  const ring::RingOptions options{.slots = static_cast<uint64_t>(config_.feed.prefetch_batches),
                                  .first_ticket = state_->ticket,
                                  .end_ticket = state_->ticket + remaining * tickets_per_step,
                                  .share = share()};
  STOKER_ASSIGN_OR_RETURN(ring_, ring::ShmRing::create(batch, options));
  supervisor::FeedOptions feeding;
  feeding.feed = config_.feed;
  feeding.config_path = rank_layout_.config_file();
  feeding.share = options.share;
  feeding.index_dir = maybe_refresher_ ? maybe_refresher_->index_dir() : layout_.index_dir();
  feeding.sample_error_path = rank_layout_.sample_errors_file();
  feeding.sample_errors = sample_errors_;
  feeding.sample_errors.ticket = state_->ticket;
  feeding.sample_errors.tickets_a_step = tickets_per_step;
  feeding.quarantined = state_->quarantined;
  if (config::training_stream(config_)) {
    STOKER_ASSIGN_OR_RETURN(
        feeding.stream,
        make_stream_supply(config_, data_, *state_, maybe_stream_input_, continues_stream_));
  }
  feed_ = std::make_unique<supervisor::FeedSupervisor>(
      std::move(feeding), *ring_, data::indexed_part(data_), plan_, feeders_, clock_);
  return feed_->start();
}

// ---- Training

Result<train::TrainerOutcome> RunSegment::train(train::TrainerChannels& channels,
                                                std::stop_token stop) {
  validate_ = validate_batch(config_, data::info_of(data_));
  // A permanent failure of the workers ends the data: the trainer saves its state and returns.
  const std::stop_callback feed_failed(feeders_.token(), [this] { ring_->close(); });
  STOKER_ASSIGN_OR_RETURN(const auto* const maybe_module,
                          train::module_of(config_.train.device, device()));
  const uint64_t first_step = state_->step;
  train::Trainer trainer(configured_, *state_, *this, *outputs_, channels, outputs_->writer(),
                         clock_,
                         {.manifest = manifest_,
                          .metrics_bytes = outputs_->metrics_bytes(),
                          .save_after_resume = save_after_resume_,
                          .is_saved = is_saved_,
                          .maybe_group = maybe_group_,
                          .has_device_memory = maybe_module != nullptr,
                          .on_setting_change = std::bind_front(&RunSegment::apply_setting, this)});
  const auto outcome = trainer.run(stop);
  if (const Status feed = feeders_.reason(); !feed.ok()) return feed;
  const bool has_finished = outcome.ok() && (*outcome == train::TrainerOutcome::kFinished ||
                                             *outcome == train::TrainerOutcome::kDataExhausted);
  if (has_finished && first_step < state_->step) outputs_->record_end();
  return outcome;
}

// What the trainer does not use itself.
void RunSegment::apply_setting(uint64_t step, const config::Config& config,
                               const config::SettingChange& change) {
  set_live_log_level(state_->settings, config, change);
  outputs_->record_setting(step, config, change);
}

Status RunSegment::shut_down() {
  feed_->stop();
  feeders_.request_stop();
  watchers_.request_stop();
  Status fed = feeders_.join(kGrace);
  if (const Status watched = watchers_.join(kGrace); fed.ok()) fed = watched;
  const Status written = outputs_->close();
  save_stream_history();
  return fed.ok() ? written : fed;
}

// For the newest checkpoint.
void RunSegment::save_stream_history() const {
  if (maybe_stream_input_ == nullptr) return;
  const std::string path = layout_.stream_history_file();
  const auto save = [&]() -> Status {
    STOKER_ASSIGN_OR_RETURN(const auto checkpoints, store_->list());
    feed::StreamState state;
    std::string start = data::info_of(data_).fingerprint;
    if (!checkpoints.empty()) {
      constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;
      STOKER_ASSIGN_OR_RETURN(state, read_stream_state(checkpoints.back().path));
      STOKER_ASSIGN_OR_RETURN(
          const std::string manifest,
          read_file(join_path(checkpoints.back().path, "manifest.json"), kMaxManifestBytes));
      start = sha256_hex(manifest);
    }
    const auto history = feed_->history_of(state);
    if (!history) return {};
    return write_stream_history(default_file_system(), path, start, *history);
  };
  const Status saved = save();
  if (!saved.ok())
    log_warn("stream history not saved", {{"path", path}, {"error", saved.to_string()}});
}

Status RunSegment::roll_back() {
  if (!is_chief()) return {};
  if (maybe_group_ != nullptr) STOKER_RETURN_IF_ERROR(maybe_group_->check_newest());
  std::optional<uint64_t> resumed_at;
  if (resume_) resumed_at = resume_->step;
  STOKER_RETURN_IF_ERROR(
      app::roll_back(default_file_system(), *store_, layout_, resumed_at, state_->rollbacks));
  save_stream_history();  // the newest checkpoint can be another one
  return {};
}

Status RunSegment::apply_refresh() {
  if (!is_chief()) return {};
  return maybe_refresher_->apply_refresh(state_->ticket, plan_);
}

// The last checkpoint cannot have the ends of files that were found after the last batch.
void RunSegment::end_stream() { archive_finished_files(config_, feed_->end_state()); }

// ---- BatchSource

feed::BatchShapes RunSegment::shapes() const {
  const data::Dataset* const indexed = data::indexed_part(data_);
  return indexed == nullptr ? ring_->layout() : feed::BatchShapes(*indexed, plan_);
}

bool RunSegment::has_new_version_at(uint64_t ticket) const {
  return maybe_refresher_ && maybe_refresher_->has_new_version_at(ticket, plan_);
}

bool RunSegment::accept(const feed::ReceivedBatch& batch) {
  Status valid = validate_ ? validate_(batch) : Status();
  if (valid.ok() && config::training_stream(config_)) {
    auto stream = feed_->stream_state(batch.ticket);
    valid = stream.status();
    if (stream.ok()) stream_ = *std::move(stream);
  }
  if (!valid.ok()) feeders_.request_stop(valid);
  return valid.ok();
}

std::optional<feed::StreamHistory> RunSegment::history_of(const feed::StreamState& state) const {
  return feed_->history_of(state);
}

std::vector<std::string> RunSegment::files_of(uint64_t ticket) const {
  const data::Dataset* const indexed = data::indexed_part(data_);
  if (config_.feed.producers == config::ProducerMode::kExternal || indexed == nullptr) return {};
  return feed::files_of(*indexed, plan_, ticket,
                        static_cast<uint64_t>(config_.train.micro_batch_size));
}

std::vector<uint64_t> RunSegment::quarantined() const { return feed_->quarantined(); }

uint64_t RunSegment::sample_errors_before(uint64_t ticket) {
  return feed_->sample_errors_before(ticket);
}

// ---- Requests of other threads

void RunSegment::add_live(control::TrainerStatus& status) const {
  add_feed(status.feed);
  if (status.feed.ready_batches == 0)
    if (const std::string source = feed_->waits_for(); !source.empty())
      status.waiting_for = "data from " + source;
  const auto saved = outputs_->writer().stats();
  train::add_writer(saved, status.checkpoint);
  // The trainer notices a failed save only when it reports.
  const bool trains = status.state == control::TrainerState::kTraining ||
                      status.state == control::TrainerState::kSaving;
  if (saved.degraded && trains) status.state = control::TrainerState::kDegraded;
}

std::optional<uint64_t> RunSegment::save_progress() const {
  const auto stats = outputs_->writer().stats();
  if (!stats.in_flight) return std::nullopt;
  return stats.saved + stats.failures;
}

void RunSegment::add_feed(control::TrainerStatus::Feed& status) const {
  const ring::RingCounters counters = ring_->counters();
  status.ready_batches = counters.ready;
  status.queue_capacity = ring_->slots();
  status.sample_errors = feed_->sample_errors();
  status.requeued_batches = counters.requeued;
  status.workers = feed_->live_workers();
  const supervisor::WorkerActivity::Busy busy = feed_->busy();
  status.workers_reading = busy.reading;
  status.workers_decoding = busy.decoding;
  status.workers_transforming = busy.transforming;
  status.workers_waiting = busy.waiting;
  status.worker_crashes = feed_->crashes();
  status.worker_timeouts = feed_->timeouts();
  status.external_producers = feed_->external_producers();
}

Result<supervisor::Attachment> RunSegment::attach(supervisor::ExternalProcess process) {
  return feed_->attach(std::move(process));
}

}  // namespace stoker::app
