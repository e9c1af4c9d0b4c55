// CheckpointWatch: wakes when something may have changed in some directories.
//
// inotify is only a hint: it is lost on network file systems, on overflow, and when a directory is
// replaced, and it may not be there at all. The truth is that the caller looks again after every
// wait; the time limit makes that happen. A directory that does not exist yet is looked for ten
// times a second, so that a run that begins is noticed at once.
//
// Threads:  one.
// Blocking: wait() at most `timeout`, and no longer than 100 ms without a look at the stop token.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <vector>

#include "shared/base/unique_fd.h"

namespace stoker::evaluator {

class CheckpointWatch {
 public:
  enum class Hints { kInotify, kNone };
  explicit CheckpointWatch(const std::vector<std::string>& directories,
                           Hints hints = Hints::kInotify);

  void wait(std::chrono::milliseconds timeout, std::stop_token stop);

 private:
  struct Watched {
    std::string directory;
    bool exists = false;
    int watch = -1;
  };
  bool look_for_new_directories();  // true when there is one
  bool take_hints();                // true when there was one

  std::vector<Watched> watched_;
  UniqueFd inotify_;  // not valid: there are no hints
};

}  // namespace stoker::evaluator
