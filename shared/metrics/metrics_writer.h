// MetricsWriter: writes the records reported by the trainer to train.jsonl and a TensorBoard event
// file.
//
// The trainer never waits for a disk: report() formats the record on the trainer thread, and
// another thread writes it.
//
// Threads:  report(), report_text() and position() from the trainer thread; run() on one thread of
//           a Coordinator; flush() and dropped() from any thread.
// Blocking: report() never; flush() up to `timeout`. If the queue is full, the newest record is
//           dropped, counted and logged; training is not affected.
// Errors:   open(): the file cannot be opened. Later errors (disk full) are logged once per outage
//           and counted; they never end training.
// Crash:    records that are not written yet are lost. A resumed run reports the steps after its
//           checkpoint again. To lose no earlier record, call flush(), which syncs, before the
//           checkpoint of a step is committed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/metrics/event_file.h"
#include "shared/metrics/json_lines.h"
#include "shared/metrics/metrics_record.h"

namespace stoker::metrics {

struct MetricsWriterOptions {
  std::string train_metrics_path;     // path of train.jsonl
  std::string tensorboard_directory;  // empty: no event file
  size_t queue_capacity = 1024;
};

// The position of a resumed run, from its checkpoint's manifest.
struct ResumePosition {
  uint64_t step = 0;
  uint64_t metrics_bytes = 0;  // position() after that step was reported
};

class MetricsWriter {
 public:
  // With `maybe_resume`, the records of later steps are truncated so that each reported step has
  // exactly one line. The step alone decides what is truncated; metrics_bytes only detects lost
  // lines (power failure, full disk), which are logged. Without `maybe_resume`, the run starts at
  // its first step, and a file that has records or is corrupt is archived as
  // train.jsonl.archived-N. `files` and `clock` must outlive this object.
  static Result<std::unique_ptr<MetricsWriter>> open(FileSystem& files, Clock& clock,
                                                     const MetricsWriterOptions& options,
                                                     std::optional<ResumePosition> maybe_resume);

  ~MetricsWriter();

  // Body of the writer thread. After a stop it writes all enqueued records and returns. Records
  // that the trainer reports later are written by flush() or the destructor.
  Status run(std::stop_token stop);

  // Returns position().
  uint64_t report(const TrainMetrics& metrics);
  // Text for TensorBoard only, such as generated samples. Not in train.jsonl.
  void report_text(std::string_view tag, uint64_t step, std::string_view text);
  // For TensorBoard only; not in train.jsonl.
  void report_histograms(uint64_t step, std::vector<NamedSummary> summaries);
  void report_image(std::string_view tag, uint64_t step, std::string png);
  // What TensorBoard shows of a run in addition; `add` is called on the writer thread, and must not flush.
  // TensorBoard reads one file of a directory after the other, so this is the only open one.
  void report_events(std::function<void(EventFile&)> add);
  // Runs `work` on the writer thread after all earlier records, for other small files that the
  // trainer must not wait for. False: the queue is full and `work` will not run.
  bool post(std::function<void()> work);
  // The length of train.jsonl after all enqueued records are written; stored in the manifest.
  uint64_t position() const { return position_.load(std::memory_order_relaxed); }

  // Waits until everything enqueued before the call is written and synced. kTimedOut, or any write
  // error since the last flush().
  Status flush(std::chrono::nanoseconds timeout);

  // Records dropped because the queue was full, and records that could not be written.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  uint64_t failed() const { return failed_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    std::string line;      // empty: not a record
    TrainMetrics metrics;  // only `step` is set for other entries
    std::function<void()> function;
  };
  explicit MetricsWriter(const MetricsWriterOptions& options) : options_(options) {}
  bool enqueue(Entry entry);
  void enqueue_event(uint64_t step, std::function<void()> add);
  Status write_all(const std::deque<Entry>& entries);
  Status write_remaining();  // requires mutex_, after run() has returned
  void record_write_status(const Status& status);
  void log_lost_events(uint64_t step);

  // Constant after open().
  const MetricsWriterOptions options_;

  // Owned by the writer thread; after run() has returned, by the holder of mutex_.
  std::unique_ptr<JsonLinesFile> lines_;
  std::unique_ptr<EventFile> events_;  // empty: no TensorBoard
  uint64_t lost_events_ = 0;           // that were logged
  bool is_failing_ = false;

  // Written by the trainer thread and the writer thread; independent values without ordering
  // requirements.
  std::atomic<uint64_t> position_{0};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> failed_{0};

  // Own synchronization.
  std::mutex mutex_;
  std::condition_variable_any work_;  // wakes the writer thread: new records or a flush request
  std::condition_variable flushed_;

  // Guarded by mutex_.
  std::deque<Entry> queue_;
  uint64_t flush_requested_ = 0;  // number of the newest flush request
  uint64_t flush_completed_ = 0;
  Status flush_status_;
  Status unflushed_status_;  // first error since the last flush()
  bool finished_ = false;    // run() has returned
};

}  // namespace stoker::metrics
