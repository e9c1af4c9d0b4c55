// DirectoryWatcher: wakes when something may have changed in some directories.
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

class DirectoryWatcher {
 public:
  enum class Backend { kInotify, kNone };
  explicit DirectoryWatcher(const std::vector<std::string>& directories,
                            Backend backend = Backend::kInotify);

  void wait(std::chrono::milliseconds timeout, std::stop_token stop);

 private:
  struct Watched {
    std::string directory;
    bool exists = false;
    int watch = -1;
  };
  bool add_new_watches();  // true when there is one
  bool drain_events();     // true when there was one

  std::vector<Watched> watched_;
  UniqueFd inotify_;  // not valid: there are no hints
};

}  // namespace stoker::evaluator
