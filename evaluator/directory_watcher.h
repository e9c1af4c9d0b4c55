// DirectoryWatcher: wakes its caller when the contents of some directories might have changed.
//
// inotify is only a hint: events are lost on network file systems, on overflow and when a directory
// is replaced, and inotify can be unavailable. The caller must therefore scan the directories after
// every wait, and `timeout` bounds the delay. Directories that do not exist yet are polled every
// 100 ms, so that a new run is noticed promptly.
//
// Threads:  one.
// Blocking: wait() at most `timeout`; it checks the stop token every 100 ms.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <vector>

#include "shared/base/file.h"

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
  bool add_new_watches();  // true if a directory has appeared
  bool drain_events();     // true if there was an event

  std::vector<Watched> watched_;
  UniqueFd inotify_;  // invalid: polling only
};

}  // namespace stoker::evaluator
