#include "shared/metrics/metrics_writer.h"

#include <unistd.h>

#include <utility>

#include "shared/base/log.h"
#include "shared/base/thread_registry.h"

namespace stoker::metrics {
namespace {

constexpr ThreadActivity kWaitForRecords{.operation = "wait for records", .is_waiting = true};

// Measurements are never deleted, except records of steps that are reported again.
Status archive(FileSystem& files, const std::string& path, const std::string& why) {
  for (int n = 1; n < 1000; ++n) {
    const std::string to = path + ".archived-" + std::to_string(n);
    const Status renamed = files.rename_noreplace(path, to);
    if (renamed.code() == StatusCode::kAlreadyExists) continue;
    if (renamed.ok()) log_warn("metrics file archived", {{"archived_to", to}, {"reason", why}});
    return renamed;
  }
  return Status(StatusCode::kIoError, path + ": too many archived files; remove some");
}

Result<std::unique_ptr<JsonLinesFile>> open_truncated(FileSystem& files, const std::string& path,
                                                      uint64_t after_step) {
  STOKER_ASSIGN_OR_RETURN(auto lines, JsonLinesFile::open(files, path));
  STOKER_ASSIGN_OR_RETURN(const uint64_t num_removed, lines->truncate_after_step(after_step));
  if (num_removed > 0)
    log_info("metrics records truncated",
             {{"path", path}, {"records", num_removed}, {"step", after_step}});
  return lines;
}

Result<std::unique_ptr<JsonLinesFile>> open_lines(FileSystem& files, const std::string& path,
                                                  std::optional<ResumePosition> maybe_resume) {
  auto lines = maybe_resume.has_value() ? open_truncated(files, path, maybe_resume->step)
                                        : JsonLinesFile::open(files, path);
  if (lines.ok() && (maybe_resume.has_value() || (*lines)->size() == 0)) return lines;
  if (!lines.ok() && lines.status().code() != StatusCode::kCorrupt) return lines;
  // A corrupt metrics file must not prevent a run from continuing.
  STOKER_RETURN_IF_ERROR(archive(
      files, path, lines.ok() ? "new run in the same directory" : lines.status().message()));
  return JsonLinesFile::open(files, path);
}

void add_events(EventFile& events, const TrainMetrics& metrics) {
  events.add_scalar("loss", metrics.step, metrics.loss);
  for (const auto& [name, value] : metrics.metrics)
    events.add_scalar("train/" + name, metrics.step, value);
  events.add_scalar("train/lr", metrics.step, metrics.lr);
  events.add_scalar("train/grad_norm", metrics.step, metrics.grad_norm);
  events.add_scalar("train/epoch", metrics.step, static_cast<double>(metrics.epoch));
  if (metrics.maybe_skipped_steps)
    events.add_scalar("train/skipped_steps", metrics.step,
                      static_cast<double>(*metrics.maybe_skipped_steps));
  if (metrics.maybe_loss_scale)
    events.add_scalar("train/loss_scale", metrics.step, *metrics.maybe_loss_scale);
  events.add_scalar("perf/samples_per_second", metrics.step, metrics.samples_per_second);
  events.add_scalar("perf/step_time_ms", metrics.step, metrics.step_time_ms);
  events.add_scalar("perf/data_wait_ms", metrics.step, metrics.data_wait_ms);
  events.add_scalar("perf/checkpoint_stall_ms", metrics.step, metrics.checkpoint_stall_ms);
  events.add_scalar("perf/degraded", metrics.step, static_cast<double>(metrics.degraded));
}

}  // namespace

Result<std::unique_ptr<MetricsWriter>> MetricsWriter::open(
    FileSystem& files, Clock& clock, const MetricsWriterOptions& options,
    std::optional<ResumePosition> maybe_resume) {
  std::unique_ptr<MetricsWriter> writer(new MetricsWriter(options));
  STOKER_ASSIGN_OR_RETURN(writer->lines_,
                          open_lines(files, options.train_metrics_path, maybe_resume));
  const uint64_t size = writer->lines_->size();
  if (maybe_resume.has_value() && size != maybe_resume->metrics_bytes) {
    using Event = LogEvent<LogLevel::kWarn>;
    log_warn(size < maybe_resume->metrics_bytes ? Event("metrics records missing")
                                                : Event("metrics file longer than expected"),
             {{"path", options.train_metrics_path},
              {"bytes", size},
              {"expected_bytes", maybe_resume->metrics_bytes},
              {"step", maybe_resume->step}});
  }
  writer->position_ = size;
  if (!options.tensorboard_directory.empty()) {
    const uint64_t after_step = maybe_resume.has_value() ? maybe_resume->step : 0;
    STOKER_ASSIGN_OR_RETURN(
        writer->events_,
        EventFile::create(files, clock, options.tensorboard_directory, after_step));
  }
  return writer;
}

uint64_t MetricsWriter::report(const TrainMetrics& metrics) {
  Entry entry;
  entry.line = to_json(to_record(metrics));
  entry.metrics = metrics;
  const uint64_t bytes = entry.line.size() + 1;
  position_.fetch_add(bytes, std::memory_order_relaxed);
  if (!enqueue(std::move(entry))) position_.fetch_sub(bytes, std::memory_order_relaxed);
  return position();
}

void MetricsWriter::enqueue_event(uint64_t step, std::function<void()> add) {
  if (events_ == nullptr) return;
  Entry entry;
  entry.metrics.step = step;
  entry.function = std::move(add);
  enqueue(std::move(entry));
}

void MetricsWriter::report_text(std::string_view tag, uint64_t step, std::string_view text) {
  enqueue_event(step, [this, step, tag = std::string(tag), text = std::string(text)] {
    events_->add_text(tag, step, text);
  });
}

void MetricsWriter::report_image(std::string_view tag, uint64_t step, std::string png) {
  enqueue_event(step, [this, step, tag = std::string(tag), png = std::move(png)] {
    events_->add_image(tag, step, png);
  });
}

void MetricsWriter::report_histograms(uint64_t step, std::vector<NamedSummary> summaries) {
  enqueue_event(step, [this, step, summaries = std::move(summaries)] {
    for (const NamedSummary& named : summaries)
      events_->add_histogram(named.name, step, named.summary);
  });
}

void MetricsWriter::report_events(std::function<void(EventFile&)> add) {
  enqueue_event(0, [this, add = std::move(add)] { add(*events_); });
}

bool MetricsWriter::post(std::function<void()> work) {
  Entry entry;
  entry.function = std::move(work);
  return enqueue(std::move(entry));
}

bool MetricsWriter::enqueue(Entry entry) {
  const uint64_t step = entry.metrics.step;
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    full = queue_.size() >= options_.queue_capacity;
    if (!full) queue_.push_back(std::move(entry));
  }
  if (!full) {
    work_.notify_one();
    return true;
  }
  const uint64_t dropped = dropped_.fetch_add(1, std::memory_order_relaxed) + 1;
  // Logged at powers of two only, so that a disk that hangs for a day does not flood the log.
  if ((dropped & (dropped - 1)) == 0)
    log_warn("metrics record dropped",
             {{"step", step}, {"total", dropped}, {"reason", "the disk is too slow"}});
  return false;
}

Status MetricsWriter::run(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  const auto has_work = [this] { return !queue_.empty() || flush_requested_ != flush_completed_; };
  for (;;) {
    {
      const ScopedActivity waiting(kWaitForRecords);
      (void)work_.wait(lock, stop, has_work);
    }
    const bool last = stop.stop_requested();
    const std::deque<Entry> entries = std::exchange(queue_, {});
    const uint64_t flush_to = flush_requested_;
    const bool sync = last || flush_to != flush_completed_;
    lock.unlock();
    Status status = write_all(entries);
    if (sync) {
      const Status synced = lines_->sync();
      if (status.ok()) status = synced;
    }
    record_write_status(status);
    lock.lock();
    if (unflushed_status_.ok()) unflushed_status_ = status;
    if (sync) {
      flush_status_ = std::exchange(unflushed_status_, {});
      flush_completed_ = flush_to;
      flushed_.notify_all();
    }
    // Also write the records that arrived during the last write.
    if (last && !has_work()) break;
  }
  finished_ = true;
  flushed_.notify_all();
  return {};
}

// Tries every entry and returns the first error.
Status MetricsWriter::write_all(const std::deque<Entry>& entries) {
  Status first;
  for (const Entry& entry : entries) {
    if (entry.line.empty()) {
      entry.function();
      continue;
    }
    Status status = lines_->append_line(entry.line);
    if (!status.ok()) {
      failed_.fetch_add(1, std::memory_order_relaxed);
      position_.fetch_sub(entry.line.size() + 1, std::memory_order_relaxed);
      if (first.ok()) first = std::move(status);
    }
    if (events_ != nullptr) add_events(*events_, entry.metrics);
  }
  if (events_ != nullptr) {
    Status status = events_->flush();
    if (status.ok() && !entries.empty()) log_lost_events(entries.back().metrics.step);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

// After they can be written again: until then, each batch could lose some.
void MetricsWriter::log_lost_events(uint64_t step) {
  const uint64_t lost = events_->dropped();
  if (lost == lost_events_) return;
  lost_events_ = lost;
  log_warn("metrics record dropped",
           {{"step", step}, {"total", lost}, {"reason", "TensorBoard's did not fit into memory"}});
}

void MetricsWriter::record_write_status(const Status& status) {
  if (status.ok() == !is_failing_) return;
  is_failing_ = !status.ok();
  if (is_failing_) {
    log_error("metrics write failed", {{"error", status.to_string()}});
  } else {
    log_info("metrics write recovered", {{"total", failed()}});
  }
}

Status MetricsWriter::write_remaining() {
  const Status status = write_all(std::exchange(queue_, {}));
  const Status synced = lines_->sync();
  flush_status_ = status.ok() ? synced : status;
  return flush_status_;
}

Status MetricsWriter::flush(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  if (finished_) return write_remaining();
  const uint64_t number = ++flush_requested_;
  work_.notify_one();
  const bool done =
      flushed_.wait_for(lock, timeout, [&] { return finished_ || flush_completed_ >= number; });
  if (!done) {
    return Status(StatusCode::kTimedOut,
                  options_.train_metrics_path + ": not written in time; the disk is too slow");
  }
  return finished_ && !queue_.empty() ? write_remaining() : flush_status_;
}

MetricsWriter::~MetricsWriter() {
  const std::lock_guard lock(mutex_);
  if (!queue_.empty()) record_write_status(write_remaining());
}

}  // namespace stoker::metrics
