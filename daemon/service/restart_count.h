// RestartCount: counts consecutive starts of a run without progress.
//
// systemd restarts a daemon that has crashed. A daemon that crashes each time before it saves a new
// checkpoint (out of memory, a corrupt sample, a driver fault) would restart for days. After
// kMaxStartsWithoutProgress such starts the next one is rejected, and the count restarts with the
// one after that, which a user has requested. A start that is rejected before training because of
// its configuration is not counted, and neither are those on another host or before a reboot: a power
// cut or a lost machine is no crash.
//
// Threads: one.
// Errors:  kIoError, kNoSpace, kPermission: the count is not saved, which is no reason to reject
//          training.
// Crash:   the count is written before anything that can crash the process.
#pragma once

#include <cstdint>
#include <string>

#include "shared/base/file.h"
#include "shared/base/machine.h"
#include "shared/base/status.h"

namespace stoker::service {

class RestartCount {
 public:
  static constexpr int kMaxStartsWithoutProgress = 4;  // one start and three restarts

  // `path` is run/restart_count.json; `files` must outlive this object. The caller must hold
  // run/LOCK. `machine`: identifies the host and its boot.
  RestartCount(FileSystem& files, std::string path, std::string machine = identify_boot())
      : files_(files), path_(std::move(path)), machine_(std::move(machine)) {}

  // Counts this start. `newest_step` is the step of the newest checkpoint, 0 if there is none.
  // False: the limit was reached, and the count is reset.
  Result<bool> record_start(uint64_t newest_step);
  // Reverts record_start() for a start that does not count.
  Status undo();
  // The run has ended normally.
  Status reset();

 private:
  struct Starts {
    uint64_t step = 0;
    int count = 0;
    std::string machine;
  };
  // Zero if the file is missing or cannot be parsed.
  static Starts read(const std::string& path);
  Status write(const Starts& starts);

  FileSystem& files_;
  const std::string path_;
  const std::string machine_;
  Starts before_;  // value before record_start()
};

}  // namespace stoker::service
