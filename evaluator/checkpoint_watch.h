// CheckpointWatch: wakes when something may have changed in a directory.
//
// inotify is only a hint: it is lost on network file systems, on overflow, and when the directory
// is replaced. The truth is that the caller looks again after every wait; the time limit makes that
// happen.
//
// Threads:  one.
// Blocking: wait() at most `timeout`, and no longer than 100 ms without a look at the stop token.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>

#include "shared/base/unique_fd.h"

namespace stoker::evaluator {

class CheckpointWatch {
 public:
  // Directories that do not exist (yet) are simply not watched; each wait() tries again.
  explicit CheckpointWatch(std::string directory);

  void wait(std::chrono::milliseconds timeout, std::stop_token stop);

 private:
  void attach();

  std::string directory_;
  UniqueFd inotify_;
  int watch_ = -1;
};

}  // namespace stoker::evaluator
