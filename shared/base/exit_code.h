// ExitCode: what the programs tell their caller. The one list; systemd units, docs and tests refer
// to it.
#pragma once

#include "shared/base/status.h"

namespace stoker {

enum class ExitCode : int {
  kSuccess = 0,       // finished, or stopped on request
  kUsage = 64,        // the command line is wrong
  kDataError = 65,    // no checkpoint is intact, data are damaged, a loss is no number
  kUnavailable = 69,  // no daemon answers
  kInternal = 70,
  kOutOfMemory = 71,
  kDeviceLost = 72,
  kCollectiveTimedOut = 73,
  kIoError = 74,
  kLocked = 75,         // another process holds the run directory; try later
  kSandbox = 77,        // stoker-feed only, read by stokerd: its seccomp filter is not permitted
  kConfiguration = 78,  // the configuration, or something it names, is wrong
  kNoProgress = 93,     // three restarts without progress: a restart will not help
  kForcedExit = 143,    // second SIGTERM: left at once
};

// The exit code that fits a Status where no more is known.
ExitCode exit_code_for(const Status& status);

}  // namespace stoker
