// LogFile: lines in a file that is rotated by size: stokerd.log is renamed to stokerd.1.log, the newest of
// the older ones. If another program moves or removes the file, the next line starts a new one.
//
// Threads:  one.
// Blocking: for the disk.
// Errors:   open(): kIoError; kInvalidArgument: not a regular file, in a DirectoryRoot. append(): of write(); a part of the line is removed again, which is not possible
//           in a pipe. A file that cannot be rotated is continued, and each further line tries again.
// Crash:    the last line can be incomplete. An empty stokerd.log.new can be left, which the next rotation
//           removes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker {

class LogFile {
 public:
  // Creates the directory, if necessary. Afterwards it is followed when it is moved, and another one in
  // its place is not touched.
  static Result<LogFile> open(const std::string& path, uint64_t rotate_bytes, int keep_files);

  // `line` ends with a newline.
  Status append(std::string_view line);

 private:
  LogFile() = default;
  std::string name(int number) const;  // 0: the current file
  void reopen_if_moved();
  void remove_end(size_t bytes);
  void rotate();

  UniqueFd directory_, file_;
  std::string stem_, extension_;
  uint64_t rotate_bytes_ = 0;
  int keep_files_ = 0;
  bool is_regular_ = false;
};

}  // namespace stoker
