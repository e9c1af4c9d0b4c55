// LogTail: reads the last lines of a log file and then follows what is appended to it; the paths of the
// logs of a run, and why one is missing.
//
// After rotation (another file with this path, or a shorter one), it reads the new file from its
// start. An incomplete line is read when it is complete: a full disk can take its beginning away.
//
// Threads:  one object per thread.
// Blocking: file reads.
// Errors:   kNotFound: no such file; kInvalidArgument: not a regular one; kIoError, kPermission.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::view {

// Of stoker-eval, or else of stokerd as this rank; 0: the chief, or a run without a group.
std::string log_path(const run::RunLayout& layout, bool evaluator, int rank);
// That there is no file with that path. `stokerd_reason`: why there is none of a rank that has a folder.
Status no_log(const run::RunLayout& layout, bool evaluator, int rank,
              const std::string& stokerd_reason);

// The last `max_bytes` bytes of a file, from the beginning of a line if it is longer; empty: none.
std::string read_end(const std::string& path, uint64_t max_bytes);

class LogTail {
 public:
  // Positions the tail before the last `lines` lines.
  static Result<LogTail> open(const std::string& path, uint64_t lines);

  // Returns the complete lines that were appended since the last call, at most 256 KiB of a file per call;
  // empty if there is nothing new. A longer line is returned in parts.
  Result<std::string> read_more();
  // Returns what read_more() has not, at most 256 KiB: the last line can be incomplete. read_more() returns
  // it again.
  Result<std::string> read_rest() const;
  // Skips all but the last `bytes` bytes of what was appended to the current file. False: there are
  // not more.
  bool skip_to_last(uint64_t bytes);

 private:
  LogTail(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Result<std::string> read_lines();
  Result<bool> is_rotated();

  std::string path_;
  UniqueFd fd_;
  uint64_t offset_ = 0;  // in fd_, of what was not returned
};

// A part of the log of one source.
struct LogPart {
  std::string source;  // "rank 1"
  std::string text;    // complete lines
};

// The lines of all parts by the time at their start, each behind its source. A line without a time
// belongs to the one before. Lines of a part keep their order, and lines of the same time that of the
// parts.
std::string merge_by_time(const std::vector<LogPart>& parts);

}  // namespace stoker::view
