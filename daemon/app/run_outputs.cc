#include "daemon/app/run_outputs.h"

#include <cstdio>
#include <filesystem>
#include <utility>

#include <boost/json.hpp>

#include "daemon/app/tensorboard_summary.h"
#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/thread_registry.h"
#include "shared/base/utf8.h"
#include "shared/config/load_config.h"
#include "shared/metrics/json_lines.h"
#include "shared/run/setting_changes.h"

namespace stoker::app {
namespace {

constexpr std::chrono::seconds kWriterGrace{10};  // to exit after the last work item

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

RunOutputs::RunOutputs(const config::Config& config, const run::RunLayout& layout,
                       const data::DatasetInfo& data, checkpoint::CheckpointStore& store,
                       const eval_metrics::MetricTable& metric_table, Clock& clock)
    : config_(config),
      layout_(layout),
      data_(data),
      store_(store),
      clock_(clock),
      retention_(config, metric_table, store, layout, clock) {}

Status RunOutputs::open_records(const std::vector<std::string>& training_metrics,
                                const std::optional<metrics::ResumePosition>& resume) {
  metrics::MetricsWriterOptions recording;
  recording.train_metrics_path = layout_.train_metrics_file();
  if (config_.metrics.tensorboard) recording.tensorboard_directory = layout_.tensorboard_dir();
  STOKER_ASSIGN_OR_RETURN(
      metrics_, metrics::MetricsWriter::open(default_file_system(), clock_, recording, resume));
  if (!resume) write_start_summary(config_, training_metrics, clock_, *metrics_);
  summarize_first_batch_ = first_batch_summarizer(config_, data_, *metrics_);
  return {};
}

writer::WriterOptions RunOutputs::writer_options() {
  writer::WriterOptions saving;
  saving.delete_expired = [this](bool is_disk_full) { retention_.delete_expired(is_disk_full); };
  // If a checkpoint exists, so do the records up to its step.
  saving.before_commit = [this]() -> Status {
    flush_records();
    return {};
  };
  saving.after_commit = [this](const checkpoint::Manifest& committed) {
    writer::record_last_checkpoint(default_file_system(), layout_, committed);
  };
  return saving;
}

void RunOutputs::start(writer::WriterOptions saving) {
  writer_ = std::make_unique<writer::CheckpointWriter>(store_, std::move(saving), clock_);
  is_running_ = true;
  if (metrics_)
    threads_.start(std::make_unique<ThreadRecord>("metrics", "write records"),
                   [this](std::stop_token stop) { return metrics_->run(stop); });
  threads_.start(std::make_unique<ThreadRecord>("checkpoints", "write checkpoint"),
                 [this](std::stop_token stop) { return writer_->run(stop); });
}

Status RunOutputs::close() {
  if (!std::exchange(is_running_, false)) return {};
  flush_records();
  threads_.request_stop();
  return threads_.join(kWriterGrace);
}

// Lost records must not prevent a checkpoint.
void RunOutputs::flush_records() {
  if (!metrics_) return;
  if (const Status flushed = metrics_->flush(kWriterGrace); !flushed.ok())
    log_warn("metrics write failed", {{"error", flushed.to_string()}});
}

// The files are written by the thread of the metrics.
void RunOutputs::record_setting(uint64_t step, const config::Config& config,
                                const config::SettingChange& change) {
  retention_.set_policy(config);
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

void RunOutputs::record_end() {
  if (metrics_) write_end_summary(clock_, *metrics_);
}

// ---- MetricsSink

uint64_t RunOutputs::report(const metrics::TrainMetrics& record) {
  return metrics_ ? metrics_->report(record) : 0;
}

void RunOutputs::report_first_batch(const feed::ReceivedBatch& batch) {
  if (summarize_first_batch_) summarize_first_batch_(batch);
}

void RunOutputs::report_graph(train::TracedGraph graph) {
  if (metrics_) write_graph(config_, data_, std::move(graph), *metrics_);
}

void RunOutputs::report_histograms(uint64_t step, std::vector<metrics::NamedSummary> summaries) {
  if (metrics_) metrics_->report_histograms(step, std::move(summaries));
}

void RunOutputs::save_profile(train::RecordedProfile recorded, train::Done done) {
  if (!metrics_)
    return train::answer(
        done, Status(StatusCode::kInvalidArgument, "this process writes no files; ask the chief"));
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

}  // namespace stoker::app
