// FileLocks: the files that are locked with flock() by processes of this machine, as listed in
// /proc/locks. Taking no lock itself, it cannot block retention or a process that reads a
// checkpoint. If /proc/locks cannot be read, no file counts as locked.
//
// Threads:  any; a value.
// Blocking: reading /proc only.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace stoker {

class FileLocks {
 public:
  static FileLocks read();

  // Whether a process on this machine holds a shared or exclusive lock on the file.
  bool is_locked(const std::string& path) const;
  // The process that acquired the exclusive lock on the file. nullopt: no process of this machine
  // did, or its PID namespace is not visible from here.
  std::optional<pid_t> find_exclusive_holder(const std::string& path) const;

 private:
  struct Lock {
    dev_t device = 0;  // of the file system, which st_dev is not on Btrfs or overlayfs
    ino_t inode = 0;
    pid_t pid = 0;
    bool is_exclusive = false;
  };
  std::vector<Lock> find(const std::string& path) const;

  std::vector<Lock> locks_;
};

// The holder of the exclusive lock on a file, for a message: "pid 4711 (rsync -a runs backup:)".
std::string describe_lock_holder(const std::string& path);

}  // namespace stoker
