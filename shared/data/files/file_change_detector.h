// FileChangeDetector: detects that indexed files have changed, for users that cache their contents
// in memory.
//
// Threads:  any.
// Blocking: one caller per 100 ms calls stat on each file; with more than 64 files, proportionally
//           less often.
// Errors:   none: the first difference is logged, and is_unchanged() returns false from then on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/files/file_table.h"

namespace stoker::data::files {

class FileChangeDetector {
 public:
  explicit FileChangeDetector(std::vector<FileTable> files);
  bool is_unchanged();

 private:
  Status check() const;

  // Constant after construction.
  const std::vector<FileTable> files_;
  std::chrono::nanoseconds every_{0};

  // Time of the next check (steady clock); the thread that advances it performs the check. changed_
  // is the result; no other data depends on it, so both are relaxed.
  std::atomic<int64_t> due_{0};
  std::atomic<bool> changed_{false};
};

}  // namespace stoker::data::files
