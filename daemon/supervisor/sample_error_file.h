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

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/metrics/json_lines.h"
#include "shared/metrics/metrics_record.h"

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

}  // namespace stoker::supervisor
