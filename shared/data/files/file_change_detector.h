// FileChangeDetector: whether files are as they were indexed, for whoever has taken their bytes into memory:
// looked at now and then, by whoever asks.
//
// Threads:  any.
// Blocking: each tenth of a second one asker as a stat of each file does; of more than 64 files, looks
//           are as much rarer.
// Errors:   none: what differs is logged once, and told by false from then on.
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

  // When the next look is due, of the steady clock; whoever moves it looks. And what the looks found,
  // which nothing else depends on.
  std::atomic<int64_t> due_{0};
  std::atomic<bool> changed_{false};
};

}  // namespace stoker::data::files
