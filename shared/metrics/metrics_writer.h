// MetricsWriter: takes reported rows from the trainer and writes them to train.jsonl and a
// TensorBoard event file.
//
// The trainer never waits for a disk: the row becomes a line of text on its thread, the writing
// happens on another one.
//
// Threads:  report(), report_text() and position() from the trainer's thread; run() on one thread
//           of a Coordinator; flush() and dropped() from any thread.
// Blocking: report() never; flush() at most `timeout`. When full: the newest row is dropped,
//           counted and logged: training goes on, the file misses the row.
// Errors:   open(): the file cannot be opened. Later trouble (disk full) is logged once per outage
//           and counted; it never ends training.
// Crash:    rows that are not written yet are lost; a resumed run reports their steps again, or had
//           them before its checkpoint: call flush(), which syncs, before the checkpoint of a step
//           is acknowledged to lose none.
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

// Where a resumed run stands, from its checkpoint's manifest.
struct ResumePosition {
  uint64_t step = 0;
  uint64_t metrics_bytes = 0;  // position() when that step had been reported
};

class MetricsWriter {
 public:
  // With a resume point, the rows of later steps are cut off, so that each reported step has
  // exactly one line. The step decides where; metrics_bytes only tells whether lines were lost
  // (power cut, full disk), which is logged. Without one, the run starts at its first step: rows
  // that are there already, and also a damaged file, are set aside as train.jsonl.archived-N.
  // `files` and `clock` must outlive this object.
  static Result<std::unique_ptr<MetricsWriter>> open(FileSystem& files, Clock& clock,
                                                     const MetricsWriterOptions& options,
                                                     std::optional<ResumePosition> maybe_resume);

  ~MetricsWriter();

  // Body of the writing thread; ends when stopped, after what was taken in is written. The trainer
  // may stop later than this thread: what it reports then is written by flush() or the destructor.
  Status run(std::stop_token stop);

  // Returns position().
  uint64_t report(const TrainMetrics& metrics);
  // Text for TensorBoard, such as a sample of what the model writes. Not in train.jsonl.
  void report_text(std::string_view tag, uint64_t step, std::string_view text);
  // For TensorBoard; not in train.jsonl.
  void report_histograms(uint64_t step, std::vector<NamedSummary> summaries);
  void report_image(std::string_view tag, uint64_t step, std::string png);
  // Runs `work` on the writing thread, after what was reported before: other small files that the
  // trainer must not wait for. False: there is no room, and `work` will not run.
  bool post(std::function<void()> work);
  // Length that train.jsonl has when everything taken in is written: what a manifest stores.
  uint64_t position() const { return position_.load(std::memory_order_relaxed); }

  // Waits until what was taken in before the call is written and synced. kTimedOut, and whatever
  // the disk has refused since the last flush().
  Status flush(std::chrono::nanoseconds timeout);

  // Rows that the queue had no room for, and rows that the disk refused.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  uint64_t failed() const { return failed_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    std::string line;      // empty: something other than a row
    TrainMetrics metrics;  // of anything else, the step only
    std::function<void()> other;
  };
  explicit MetricsWriter(const MetricsWriterOptions& options) : options_(options) {}
  bool enqueue(Entry entry);
  void enqueue_event(uint64_t step, std::function<void()> add);
  Status write_all(const std::deque<Entry>& entries);
  Status write_rest();  // with mutex_ held, after run() has returned
  void record_write_status(const Status& status);

  // Constant after open().
  const MetricsWriterOptions options_;

  // The writing thread's; after run() has returned, of whoever holds mutex_.
  std::unique_ptr<JsonLinesFile> lines_;
  std::unique_ptr<EventFile> events_;  // empty: no TensorBoard
  bool failing_ = false;

  // Written by the trainer's and the writing thread; single numbers that nothing else is ordered
  // by.
  std::atomic<uint64_t> position_{0};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> failed_{0};

  // Own synchronisation.
  std::mutex mutex_;
  std::condition_variable_any work_;  // for the writing thread: rows, or a flush is wanted
  std::condition_variable flushed_;

  // Guarded by mutex_.
  std::deque<Entry> queue_;
  uint64_t flush_wanted_ = 0;  // number of the newest flush() that somebody waits for
  uint64_t flush_done_ = 0;
  Status flush_status_;
  Status unflushed_status_;  // first trouble since the last flush()
  bool ended_ = false;       // run() has returned
};

}  // namespace stoker::metrics
