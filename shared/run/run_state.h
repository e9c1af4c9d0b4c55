// RunState: whether a run is going on, has ended, or is dead; from its directory alone.
//
// A held LOCK is a live trainer: the kernel frees it however the process dies, so no heartbeat is
// needed. exit_status.json is written by a trainer that ended by its own decision, and removed by
// the next one at its start. A paused trainer holds the lock like any other, and leaves paused.json as well.
//
// Threads: any.
// Errors:  read_run_state() has none: what cannot be read is not there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::run {

// How a run ended.
enum class RunOutcome {
  kFinished,  // all steps are done, or it was stopped early
  kStopped,   // on request; started again, it continues
  kFailed,
};
std::string_view to_string(RunOutcome outcome);  // "finished", "stopped", "failed"

struct ExitStatus {
  RunOutcome outcome = RunOutcome::kFinished;  // `state` in the file
  uint64_t step = 0;
  std::string reason;  // one line
  int exit_code = 0;   // of stokerd
};

std::string to_json(const ExitStatus& end);
Result<ExitStatus> parse_exit_status(std::string_view json, const std::string& path_in_messages);
Status write_exit_status(FileSystem& files, const RunLayout& layout, const ExitStatus& end);

// What a paused trainer leaves for those who only see the directory.
struct PauseStatus {
  uint64_t step = 0;
  std::string since;  // ISO 8601
};

std::string to_json(const PauseStatus& pause);
Result<PauseStatus> parse_pause_status(std::string_view json, const std::string& path_in_messages);

struct RunState {
  enum class Phase {
    kAbsent,   // no run directory, or nothing in it
    kRunning,  // the lock is held
    kEnded,    // exit_status.json is there
    kCrashed,  // neither: the trainer was killed, or the machine went down
  };
  Phase phase = Phase::kAbsent;
  std::optional<ExitStatus> end;
  std::optional<PauseStatus> pause;  // of a running one, while it is paused
  // Not empty: this file system has no locks, so that a running trainer looks like a dead one.
  std::string no_locks;
};

RunState read_run_state(const RunLayout& layout);

}  // namespace stoker::run
