// SampleErrorFile: RUN/sample_errors.jsonl, the list of a run's samples that could not be read.
//
// It goes with the checkpoints as the rows of metrics do: what a checkpoint counts is on the disk
// before the checkpoint is acknowledged, and a run that goes on from one first cuts off what later
// steps had found, because they find it again.
//
// Threads:  every method from any thread.
// Blocking: add() never; write() and flush() for the disk.
// Errors:   trouble is logged once per outage and ends nothing: lines that could not be written wait
//           for the next write().
// Format:   one JSON object a line, in the order of the reports: {"step", "ticket", "sample", "file",
//           "offset", "error", "reason"}. The step is the one that trains on the ticket; earlier
//           releases wrote none. At most kMaxLines lines.
// Crash:    kill -9 may leave a torn last line, which whoever opens the file next cuts off.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/config/feed_config.h"
#include "shared/data/dataset.h"
#include "shared/metrics/json_lines.h"
#include "shared/metrics/metrics_record.h"
#include "shared/ring/shm_ring.h"

namespace stoker::supervisor {

class SampleErrorFile {
 public:
  static constexpr uint64_t kMaxLines = 1'000'000;

  // Where a run goes on: from the end of this step, with this ticket.
  struct Position {
    uint64_t step = 0;
    uint64_t ticket = 0;
  };
  // Leaves in the file what belongs to the steps up to `to`, and returns how many lines those are: the
  // old file or the new one is there, never a part. One that is no list is set aside. kIoError,
  // kNoSpace, kPermission: it is as it was.
  static Result<uint64_t> truncate_after(FileSystem& files, const std::string& path, Position to);

  // `path`: empty: no list is kept. `lines`: that are there already. `files` must outlive this object.
  SampleErrorFile(FileSystem& files, std::string path, uint64_t lines);

  void add(const metrics::MetricsRecord& line);
  void write();  // what was added so far
  void flush();  // the same, and waits until it is on the disk
  const std::string& path() const { return path_; }

 private:
  Status write_lines(std::deque<std::string>& lines);
  Status sync();
  void record_write_status(const Status& status);

  // Constant after construction.
  FileSystem& files_;
  const std::string path_;

  std::mutex file_mutex_;  // taken before mutex_
  // Guarded by file_mutex_.
  std::unique_ptr<metrics::JsonLinesFile> file_;  // opened for its first line
  bool is_unsynced_ = false;
  bool is_failing_ = false;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::deque<std::string> waiting_;
  uint64_t lines_;  // of the file and waiting
};

// Where this start of the run goes on, and what was found before.
struct SampleErrorHistory {
  uint64_t count = 0;
  uint64_t lines = 0;   // of sample_errors.jsonl
  uint64_t step = 0;    // done
  uint64_t ticket = 0;  // the first of this start
  uint64_t tickets_a_step = 1;
};

// SampleErrorLog: what becomes of samples that could not be read: counted, a line in the log, a line for
// sample_errors.jsonl, and the end of the run where the configuration asks for it.
//
// A bad sample counts once for each ticket that it was to be part of, over all starts of the run. A
// checkpoint counts those of the tickets that its steps were trained on, and no later ones, although
// readers are ahead and may have reported more: its resumed run meets those again. All reports of a
// ticket are there before its batch is, so no ticket that was trained on is counted short. Only
// reports that found no room in the ring count when they are made, because nobody knows their ticket.
//
// Threads:  one at a time.
// Blocking: never.
// Owner:    dataset, file and clock must outlive this object.
// Errors:   add_reports(): kCorrupt: the run must end (feed.on_sample_error: fail, or more than
//           feed.max_sample_error_rate), said again each time.
class SampleErrorLog {
 public:
  SampleErrorLog(const config::FeedConfig& feed, const data::Dataset& dataset, uint64_t batch,
                 const SampleErrorHistory& before, SampleErrorFile& file, const Clock& clock);

  // `counters`: of the ring, from before the reports were taken out of it.
  Status add_reports(const std::vector<ring::SampleError>& reports,
                     const ring::RingCounters& counters);
  uint64_t count() const { return before_.count + found_ + lost_; }
  // Of the tickets before this one, which is the trainer's next, or of the step that it is in.
  uint64_t count_before(uint64_t ticket) const;

 private:
  struct ErrorRate {
    uint64_t errors = 0;
    uint64_t samples = 0;
  };
  uint64_t step_at(uint64_t ticket) const;
  void forget_used(uint64_t next_ticket);
  void log(const ring::SampleError& error, const data::SampleSource& source);
  void list(const ring::SampleError& error, const data::SampleSource& source);
  void log_suppressed();
  Status check_error_rate(const ring::RingCounters& counters) const;
  bool exceeds_limit(const ErrorRate& share) const;

  // Constant after construction.
  const config::FeedConfig feed_;
  const data::Dataset& dataset_;
  const uint64_t batch_;
  const SampleErrorHistory before_;
  SampleErrorFile& file_;
  const Clock& clock_;

  // (ticket, sample), but for those that are surely trained on.
  std::set<std::pair<uint64_t, uint64_t>> seen_;
  uint64_t found_ = 0;  // in this start
  uint64_t lost_ = 0;   // reports, in this start
  Status limit_status_;
  std::string last_;  // for messages: "sample 17 (file, offset): reason"
  uint64_t suppressed_ = 0;
  std::chrono::nanoseconds last_line_{0};
};

}  // namespace stoker::supervisor
