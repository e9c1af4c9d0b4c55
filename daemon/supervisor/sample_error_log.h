// SampleErrorFile: RUN/sample_errors.jsonl, the list of samples of a run that could not be read.
//
// Like the metrics records, it is kept consistent with the checkpoints: the errors that a
// checkpoint counts are durable before the checkpoint is committed. A run that resumes from a
// checkpoint first truncates the errors of later steps, because they will be found again.
//
// Threads:  every method may be called from any thread.
// Blocking: add() never; write() and flush() block on the disk.
// Errors:   a write error is logged once per outage and has no other effect; unwritten lines are
//           retained for the next write().
// Format:   one JSON object per line, in the order of the reports: {"step", "ticket", "sample",
//           "path", "offset", "error", "message"}. The step is the one that trains on the ticket;
//           earlier releases wrote no step. At most kMaxLines lines.
// Crash:    kill -9 can leave a partial last line, which the next open truncates.
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

  // The position from which a run resumes: after this step, with this ticket.
  struct Position {
    uint64_t step = 0;
    uint64_t ticket = 0;
  };
  // Removes the records of steps after `to` and returns the number of remaining lines. The file is
  // replaced atomically. A file that is not a valid list is archived. On kIoError, kNoSpace,
  // kPermission it is unchanged.
  static Result<uint64_t> truncate_after(FileSystem& files, const std::string& path, Position to);

  // `path`: empty: no list is written. `lines`: number of existing lines. `files` must outlive this
  // object.
  SampleErrorFile(FileSystem& files, std::string path, uint64_t lines);

  void add(const metrics::MetricsRecord& line);
  void write();  // writes the lines added so far
  void flush();  // also waits until they are durable
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
  uint64_t lines_;  // in the file and in waiting_
};

// The position from which this start of the run continues, and the sample errors before it.
struct SampleErrorHistory {
  uint64_t count = 0;
  uint64_t lines = 0;   // of sample_errors.jsonl
  uint64_t step = 0;    // last completed step
  uint64_t ticket = 0;  // first ticket of this start
  uint64_t tickets_a_step = 1;
};

// SampleErrorLog: handles sample errors. Counts and logs them, lists them in sample_errors.jsonl,
// and ends the run if the configuration requires it.
//
// A sample error counts once for each ticket that should have contained the sample, over all starts
// of the run. A checkpoint counts the errors of the tickets that its steps were trained on. It does
// not count later tickets, although workers are ahead and can have reported more: the resumed run
// finds those again. All reports of a ticket are available before its batch is, so no ticket that
// was trained on is undercounted. Reports that were dropped because the ring had no room count when
// they are made, because their ticket is unknown.
//
// Threads:   one at a time.
// Blocking:  never.
// Ownership: dataset, file and clock must outlive this object.
// Errors:    add_reports(): kCorrupt, or kIoError if the file system has lost the last sample: the run
//            must end (feed.on_sample_error: fail, or the rate exceeds feed.max_sample_error_rate);
//            returned again by each later call.
class SampleErrorLog {
 public:
  // `maybe_dataset`: null without samples that have an index.
  SampleErrorLog(const config::FeedConfig& feed, const data::Dataset* maybe_dataset, uint64_t batch,
                 const SampleErrorHistory& before, SampleErrorFile& file, const Clock& clock);

  // `counters`: counters of the ring, read before the reports were drained.
  Status add_reports(const std::vector<ring::SampleError>& reports,
                     const ring::RingCounters& counters);
  uint64_t count() const { return before_.count + found_ + lost_; }
  // The number of errors in tickets before `ticket`, which is the trainer's next one or belongs to
  // its current step.
  uint64_t count_before(uint64_t ticket) const;

  // What has become of the folders of a file that cannot be opened any more, such as by an unmount: "/data/png
  // does not exist any more; is it mounted?"; empty: only the file is missing.
  static std::string describe_lost_folder(const std::string& file);

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
  const data::Dataset* const maybe_dataset_;
  const uint64_t batch_;
  const SampleErrorHistory before_;
  SampleErrorFile& file_;
  const Clock& clock_;

  // (ticket, sample), except for tickets that have certainly been trained on.
  std::set<std::pair<uint64_t, uint64_t>> seen_;
  uint64_t found_ = 0;  // since this start
  uint64_t lost_ = 0;   // dropped reports since this start
  Status limit_status_;
  std::string last_;       // for messages: "sample 17 (file, offset): reason"
  std::string last_file_;  // of that sample
  StatusCode last_code_ = StatusCode::kCorrupt;
  uint64_t suppressed_ = 0;
  std::chrono::nanoseconds last_line_{0};
};

}  // namespace stoker::supervisor
