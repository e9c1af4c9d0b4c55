// FileLocks: who holds which file by flock, as the kernel lists it: nothing is locked to find out, so
// neither retention nor a reader is kept from anything.
//
// Threads: a value.
// Errors:  none: where the list cannot be read (/proc/locks), nobody holds anything.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace stoker::ctl {

class FileLocks {
 public:
  static FileLocks read();

  // Whether somebody on this machine holds the file, shared or alone.
  bool holds(const std::string& path) const;

 private:
  std::vector<std::pair<dev_t, ino_t>> held_;
};

}  // namespace stoker::ctl
