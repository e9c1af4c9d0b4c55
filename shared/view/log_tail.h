// LogTail: reads the last lines of a log file and then follows what is appended to it.
//
// After rotation (another file with this path, or a shorter one), it reads the new file from its
// start.
//
// Threads:  one object per thread.
// Blocking: file reads.
// Errors:   kNotFound: no such file; kIoError, kPermission.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::view {

class LogTail {
 public:
  // Positions the tail before the last `lines` lines.
  static Result<LogTail> open(const std::string& path, uint64_t lines);

  // Returns what was appended since the last call, at most 256 KiB per call; empty if there is
  // nothing new.
  Result<std::string> read_more();

 private:
  LogTail(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Result<std::string> read_block();
  Result<bool> is_rotated();

  std::string path_;
  UniqueFd fd_;
  uint64_t offset_ = 0;  // number of bytes read from fd_
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
