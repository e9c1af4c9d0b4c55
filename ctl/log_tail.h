// LogTail: the last lines of a log file, and then what is appended to it.
//
// A log that is rotated (another file under the name, or a shorter one) is read on from its
// beginning.
//
// Threads:  one object per thread.
// Blocking: as reading a file does.
// Errors:   kNotFound: there is no such file. kIoError, kPermission.
#pragma once

#include <cstdint>
#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::ctl {

class LogTail {
 public:
  // Stands before the last `lines` lines.
  static Result<LogTail> open(const std::string& path, uint64_t lines);

  // What has come since the last call, a part of a few hundred KiB at a time; empty when there is
  // nothing new.
  Result<std::string> read_more();

 private:
  LogTail(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Result<std::string> read_here();
  Result<bool> was_rotated();

  std::string path_;
  UniqueFd fd_;
  uint64_t at_ = 0;  // bytes read of fd_
};

}  // namespace stoker::ctl
