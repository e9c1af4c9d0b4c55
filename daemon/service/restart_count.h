// RestartCount: how often a run was started without getting any further.
//
// systemd starts a daemon that died again. One that dies each time before it has saved anything new
// (memory, a bad sample, a broken driver) would go on for days; after kMaxStartsWithoutProgress such starts the next
// one is refused, and the one after that, which somebody asked for, begins to count anew. A start that
// was refused before it trained, for what somebody wrote, is none.
//
// Threads: one.
// Errors:  kIoError, kNoSpace, kPermission: the count is not kept; training is not worth refusing
//          for that.
// Crash:   the count is written before anything that may kill the process.
#pragma once

#include <cstdint>
#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::service {

class RestartCount {
 public:
  static constexpr int kMaxStartsWithoutProgress = 4;  // a start and three restarts

  // `path` is run/restart_count.json; `files` must outlive this object. The caller holds run/LOCK.
  RestartCount(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}

  // Counts this start. `newest_step` is that of the newest checkpoint, 0 where there is none. False: the
  // limit was reached, and the count begins anew.
  Result<bool> record_start(uint64_t newest_step);
  // It was none that counts: as before record_start().
  Status undo();
  // The run has ended as it should.
  Status reset();

 private:
  struct Starts {
    uint64_t step = 0;
    int count = 0;
  };
  // None where the file is missing or cannot be understood: it only counts.
  static Starts read(const std::string& path);
  Status write(const Starts& starts);

  FileSystem& files_;
  const std::string path_;
  Starts before_;  // record_start()
};

}  // namespace stoker::service
