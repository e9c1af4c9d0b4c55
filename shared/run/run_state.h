// RunState: whether a run is running, has ended or has crashed, determined from its directory
// alone.
//
// A held LOCK means that the trainer is running. The kernel releases the lock however the process
// ends, so no heartbeat is needed. A trainer that ends in an orderly way writes exit_status.json. A paused
// trainer also holds the lock and additionally writes paused.json.
//
// A start that is refused is not the end of the run: exit_status.json is set aside when stokerd opens the directory, and is
// gone when the start is accepted: everything is checked, and the run is about to change. A start that ends before
// puts the file back and writes last_start.json; after one that was killed, the file that was set aside says how the
// run ended.
//
// Threads: any.
// Errors:  read_run_state() reports none: a file that cannot be read is treated as missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::run {

// How a run ended.
enum class RunOutcome {
  kFinished,  // max_steps reached, end of a stream, or early stopping
  kStopped,   // on request; a restart resumes the run
  kFailed,
  kPreempted,  // by SIGTERM of its launcher, which starts it again: not the end of the run
};
std::string_view to_string(RunOutcome outcome);  // "finished", "stopped", "failed", "preempted"

struct ExitStatus {
  RunOutcome outcome = RunOutcome::kFinished;  // `state` in the file
  uint64_t step = 0;
  std::string reason;  // one line
  int exit_code = 0;   // of stokerd
};

// A start that ended before it was accepted.
struct LastStart {
  std::string time;  // of its end, ISO 8601
  ExitStatus end;    // the step is 0
};

// What a run ends with, for people: the message, which says what is wrong. The kind of an error that is one of
// stoker or of the machine comes first: "out of memory: …".
std::string reason_of(const Status& failure);

std::string to_json(const ExitStatus& end);
Result<ExitStatus> parse_exit_status(std::string_view json, const std::string& path_in_messages);
std::string to_json(const LastStart& start);
Result<LastStart> parse_last_start(std::string_view json, const std::string& path_in_messages);
Status write_exit_status(FileSystem& files, const RunLayout& layout, const ExitStatus& end);

// Of the holder of LOCK. After a crash, each can be repeated.
Status set_aside_exit_status(FileSystem& files, const RunLayout& layout);
Status put_back_exit_status(FileSystem& files, const RunLayout& layout);
Status accept_start(FileSystem& files, const RunLayout& layout);  // also removes last_start.json

// Written by a paused trainer for programs that only see the run directory.
struct PauseStatus {
  uint64_t step = 0;
  std::string since;  // ISO 8601
};

std::string to_json(const PauseStatus& pause);
Result<PauseStatus> parse_pause_status(std::string_view json, const std::string& path_in_messages);

struct RunState {
  enum class Phase {
    kAbsent,     // no run directory, or an empty one
    kRunning,    // the lock is held
    kEnded,      // exit_status.json exists, or was set aside
    kPreempted,  // the same, with RunOutcome::kPreempted: its launcher starts it again
    kCrashed,    // neither: the process was killed or the machine went down
  };
  Phase phase = Phase::kAbsent;
  std::optional<ExitStatus> end;  // kEnded, kPreempted
  // Of the newest start, if it ended before it was accepted. Not set while the trainer is running.
  std::optional<LastStart> last_start;
  std::optional<PauseStatus> pause;  // set while a running trainer is paused
  // Not empty if the file system does not support locks; a running trainer is then reported as crashed.
  std::string no_locks;
  // Of the newest process that has ended in an orderly way: of last_start, else of `end`.
  std::optional<int> exit_code() const {
    if (last_start) return last_start->end.exit_code;
    return end ? std::optional(end->exit_code) : std::nullopt;
  }
};

RunState read_run_state(const RunLayout& layout);

// The evaluator of a run, from its own lock and exit status.
struct EvaluatorState {
  enum class Phase {
    kNotStarted,
    kRunning,  // the lock is held
    kExited,   // all is evaluated, or it was stopped
    kFailed,   // it has reported why
    kCrashed,  // it was killed, or its watchdog has ended it
  };
  Phase phase = Phase::kNotStarted;
  std::string reason = {};  // kFailed, kCrashed

  // `word`: that of to_string(); another one is that of a later release, and counts as kExited.
  static EvaluatorState of(std::string_view word, std::string reason);
};
std::string_view to_string(EvaluatorState::Phase phase);  // "not_started", "running", …

EvaluatorState read_evaluator_state(const RunLayout& layout);

// What the holder of a LOCK of a run writes to it (lock_file()): process, start, and its task in a
// cluster, which config.yaml lacks if options or TF_CONFIG set it.
std::string lock_text(Clock& clock, const std::string& task = {});
// The task that is in this LOCK, printable; empty: none.
std::string task_in_lock(const std::string& path);

}  // namespace stoker::run
