#include "daemon/app/run_segment.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include <ATen/Parallel.h>
#include <boost/json.hpp>

#include "daemon/app/dataset_refresher.h"
#include "daemon/app/rollback.h"
#include "daemon/app/stream_data.h"
#include "daemon/app/stream_history_file.h"
#include "daemon/app/tensorboard_summary.h"
#include "daemon/app/validate_batch.h"
#include "daemon/train/device.h"
#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/base/thread_registry.h"
#include "shared/base/utf8.h"
#include "shared/metrics/json_lines.h"
#include "shared/run/setting_changes.h"

namespace stoker::app {
namespace {

using namespace std::chrono_literals;
constexpr std::string_view kLogLevel = "log.level";
constexpr auto kGrace = 10s;  // for the threads to exit after their last work item

// Lost records must not prevent a checkpoint.
void flush_records(metrics::MetricsWriter* maybe_metrics) {
  if (maybe_metrics == nullptr) return;
  if (const Status flushed = maybe_metrics->flush(kGrace); !flushed.ok())
    log_warn("metrics write failed", {{"error", flushed.to_string()}});
}

// The run directory can be relative to the working directory of stokerd; the client can have
// another one.
std::string absolute(const std::string& path) {
  std::error_code error;
  const auto found = std::filesystem::absolute(path, error);
  return error ? path : found.lexically_normal().string();
}

// LibTorch writes the file itself; it is renamed when it is complete.
Status save_kernels(const train::RecordedProfile& recorded, const std::string& path) {
  const std::string unfinished = path + ".tmp";
  STOKER_RETURN_IF_ERROR(recorded.save_kernels(unfinished));
  return default_file_system().rename(unfinished, path);
}

// Writes profiles/step-N.json, where N is the last profiled step, and step-N.kernels.json if a
// LibTorch profile was requested. Returns a summary.
Result<std::string> write_profile(const run::RunLayout& layout,
                                  const train::RecordedProfile& recorded) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%09llu",
                static_cast<unsigned long long>(recorded.profile.steps.back().step));
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), layout.profiles_dir()));
  const std::string path = join_path(layout.profiles_dir(), name);
  STOKER_RETURN_IF_ERROR(write_file_atomically(default_file_system(), path + ".json",
                                               train::to_chrome_trace(recorded.profile)));
  boost::json::object reply = train::summarize(recorded.profile);
  reply["path"] = valid_utf8(absolute(path + ".json"));
  if (recorded.save_kernels) {
    STOKER_RETURN_IF_ERROR(save_kernels(recorded, path + ".kernels.json"));
    reply["kernels_path"] = valid_utf8(absolute(path + ".kernels.json"));
  }
  return boost::json::serialize(reply);
}

Status append_line(const std::string& path, const std::string& line) {
  STOKER_ASSIGN_OR_RETURN(const auto file,
                          metrics::JsonLinesFile::open(default_file_system(), path));
  STOKER_RETURN_IF_ERROR(file->append_line(line));
  return file->sync();
}

// Appends to setting_changes.jsonl, and replaces config.yaml by the configuration in effect, which
// stoker-eval and stokerctl read.
void record_setting_change(const run::RunLayout& layout, const run::SettingChange& change,
                           const config::Config& config) {
  const auto log_failure = [](const std::string& path, const Status& status) {
    if (!status.ok())
      log_warn("setting changes not recorded", {{"path", path}, {"error", status.to_string()}});
  };
  log_failure(layout.setting_changes_file(),
              append_line(layout.setting_changes_file(), run::to_json(change)));
  log_failure(layout.config_file(),
              config::write_config(default_file_system(), layout.config_file(), config));
}

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

void log_training(const config::Config& config, const train::TrainingState& state) {
  log_info("training started", {{"model_digest", state.model_digest().substr(0, 12)},
                                {"device", state.device().str()},
                                {"num_threads", at::get_num_threads()},
                                {"start_step", state.step},
                                {"max_steps", config.train.max_steps}});
}

Status RunSegment::open() {
  for (const config::LiveSetting& setting : state_->settings)
    if (setting.key == kLogLevel) set_log_level(config_.log.level);
  STOKER_RETURN_IF_ERROR(open_outputs());
  STOKER_RETURN_IF_ERROR(start_feed());
  if (maybe_refresher_ && is_chief()) maybe_refresher_->watch(*data_, watchers_);
  log_training(config_, *state_);
  return {};
}

// Metrics and checkpoints, from the position of `resume_` on.
Status RunSegment::open_outputs() {
  metrics::MetricsWriterOptions recording;
  recording.train_metrics_path = layout_.train_metrics_file();
  if (config_.metrics.tensorboard) recording.tensorboard_directory = layout_.tensorboard_dir();
  if (is_chief()) {
    STOKER_ASSIGN_OR_RETURN(
        metrics_, metrics::MetricsWriter::open(default_file_system(), clock_, recording, resume_));
    if (!resume_) write_start_summary(config_, state_->training_metrics(), clock_, *metrics_);
  }
  retention_manager_ =
      std::make_unique<writer::RetentionManager>(config_, metric_table_, *store_, layout_, clock_);
  writer::WriterOptions saving;
  saving.delete_expired = [this](bool is_disk_full) {
    retention_manager_->delete_expired(is_disk_full);
  };
  // If a checkpoint exists, so do the records and sample errors up to its step.
  saving.before_commit = [this]() -> Status {
    if (maybe_group_ != nullptr) STOKER_RETURN_IF_ERROR(maybe_group_->check_newest());
    flush_records(metrics_.get());
    feed_->flush_sample_errors();
    return {};
  };
  saving.after_commit = [this](const checkpoint::Manifest& committed) {
    writer::record_last_checkpoint(default_file_system(), layout_, committed);
    if (config::training_stream(config_))
      archive_finished_files(
          config_, join_path(store_->directory(),
                             checkpoint::CheckpointStore::checkpoint_name(committed.step)));
  };
  if (state_->optimizer().is_sharded()) share_commits(saving);
  STOKER_ASSIGN_OR_RETURN(saving.pinned_allocator,
                          train::make_pinned_allocator(config_.train.device, state_->device()));
  writer_ = std::make_unique<writer::CheckpointWriter>(*store_, std::move(saving), clock_);
  if (metrics_)
    writers_.start(std::make_unique<ThreadRecord>("metrics", "write records"),
                   [this](std::stop_token stop) { return metrics_->run(stop); });
  writers_.start(std::make_unique<ThreadRecord>("checkpoints", "write checkpoint"),
                 [this](std::stop_token stop) { return writer_->run(stop); });
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
  const ring::BatchLayout batch(data_->spec(),
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
        make_stream_supply(config_, *data_, *state_, maybe_stream_input_, continues_stream_));
  }
  feed_ = std::make_unique<supervisor::FeedSupervisor>(std::move(feeding), *ring_, *data_, plan_,
                                                       feeders_, clock_);
  return feed_->start();
}

// ---- Training

Result<train::TrainerOutcome> RunSegment::train(train::TrainerChannels& channels,
                                                std::stop_token stop) {
  validate_ = validate_batch(config_, *data_);
  if (metrics_) summarize_first_batch_ = first_batch_summarizer(config_, *data_, *metrics_);
  // A permanent failure of the workers ends the data: the trainer saves its state and returns.
  const std::stop_callback feed_failed(feeders_.token(), [this] { ring_->close(); });
  STOKER_ASSIGN_OR_RETURN(const auto* const maybe_module,
                          train::module_of(config_.train.device, device()));
  const uint64_t first_step = state_->step;
  train::Trainer trainer(configured_, *state_, *this, *this, channels, *writer_, clock_,
                         {.manifest = manifest_,
                          .metrics_bytes = metrics_ ? metrics_->position() : 0,
                          .save_after_resume = save_after_resume_,
                          .is_saved = is_saved_,
                          .maybe_group = maybe_group_,
                          .has_device_memory = maybe_module != nullptr,
                          .on_setting_change = std::bind_front(&RunSegment::apply_setting, this)});
  const auto outcome = trainer.run(stop);
  if (const Status feed = feeders_.reason(); !feed.ok()) return feed;
  const bool has_finished = outcome.ok() && (*outcome == train::TrainerOutcome::kFinished ||
                                             *outcome == train::TrainerOutcome::kDataExhausted);
  if (has_finished && first_step < state_->step && metrics_) write_end_summary(clock_, *metrics_);
  return outcome;
}

// What the trainer does not use itself. The files are written by the thread of the metrics.
void RunSegment::apply_setting(uint64_t step, const config::Config& config,
                               const config::SettingChange& change) {
  if (change.key == kLogLevel) set_log_level(config.log.level);
  retention_manager_->set_policy(config);
  if (!metrics_) return;
  const run::SettingChange record{.time = to_iso8601(clock_.wall()),
                                  .step = step,
                                  .key = change.key,
                                  .previous = change.previous,
                                  .current = change.current};
  const bool posted = metrics_->post(
      [&layout = layout_, record, config] { record_setting_change(layout, record, config); });
  if (!posted)
    log_warn("setting changes not recorded",
             {{"path", layout_.setting_changes_file()}, {"error", "the metrics queue is full"}});
}

Status RunSegment::shut_down() {
  feed_->stop();
  feeders_.request_stop();
  watchers_.request_stop();
  Status fed = feeders_.join(kGrace);
  if (const Status watched = watchers_.join(kGrace); fed.ok()) fed = watched;
  flush_records(metrics_.get());
  writers_.request_stop();
  const Status written = writers_.join(kGrace);
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
    std::string start = data_->fingerprint();
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

feed::BatchShapes RunSegment::shapes() const { return feed::BatchShapes(*data_, plan_); }

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
  std::vector<std::string> files;
  if (config_.feed.producers == config::ProducerMode::kExternal) return files;
  std::set<std::string> seen;
  for (int64_t row = 0; row < config_.train.micro_batch_size; ++row) {
    const uint64_t sample = plan_.at(ticket, static_cast<uint64_t>(row)).sample;
    const std::string file = data_->source(sample).file;
    if (!file.empty() && seen.insert(file).second) files.push_back(file);
  }
  return files;
}

std::vector<uint64_t> RunSegment::quarantined() const { return feed_->quarantined(); }

uint64_t RunSegment::sample_errors_before(uint64_t ticket) {
  return feed_->sample_errors_before(ticket);
}

// ---- MetricsSink

uint64_t RunSegment::report(const metrics::TrainMetrics& record) {
  return metrics_ ? metrics_->report(record) : 0;
}

void RunSegment::report_first_batch(const feed::ReceivedBatch& batch) {
  if (summarize_first_batch_) summarize_first_batch_(batch);
}

void RunSegment::report_graph(train::TracedGraph graph) {
  write_graph(config_, *data_, std::move(graph), *metrics_);
}

void RunSegment::report_histograms(uint64_t step, std::vector<metrics::NamedSummary> summaries) {
  if (metrics_) metrics_->report_histograms(step, std::move(summaries));
}

void RunSegment::save_profile(train::RecordedProfile recorded, train::Done done) {
  // Shared, because a posted function must be copyable.
  const auto profile = std::make_shared<const train::RecordedProfile>(std::move(recorded));
  const bool posted = metrics_->post(
      [&layout = layout_, profile, done] { train::answer(done, write_profile(layout, *profile)); });
  if (!posted) {
    train::answer(done, Status(StatusCode::kBusy,
                               "the metrics queue is full because the disk is too "
                               "slow; the profile is lost"));
  }
}

// ---- Requests of other threads

void RunSegment::add_live(control::TrainerStatus& status) const {
  add_feed(status.feed);
  if (status.feed.ready_batches == 0)
    if (const std::string source = feed_->waits_for(); !source.empty())
      status.waiting_for = "data from " + source;
  const auto saved = writer_->stats();
  status.checkpoint.last_saved_step = std::max(status.checkpoint.last_saved_step, saved.last_step);
  status.checkpoint.is_saving = saved.in_flight;
  status.checkpoint.commit_ms = saved.last_ms;
  status.checkpoint.saved_total = saved.saved;
  status.checkpoint.failed_total = saved.failures;
  status.checkpoint.skipped_total = saved.skipped;
  status.checkpoint.last_error = saved.last_error;
  // The trainer notices a failed save only when it reports.
  const bool trains = status.state == control::TrainerState::kTraining ||
                      status.state == control::TrainerState::kSaving;
  if (saved.degraded && trains) status.state = control::TrainerState::kDegraded;
}

std::optional<uint64_t> RunSegment::save_progress() const {
  const auto stats = writer_->stats();
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
