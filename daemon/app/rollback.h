// Rollback: returns a run with a nonfinite loss to a checkpoint (train.on_nonfinite: rollback).
// RUN/rollback.json records which one and how often, so that a daemon that is killed meanwhile resumes
// with the same learning rate.
//
// Threads: one, under run/LOCK.
// Errors:  kCorrupt: no checkpoint to return to, or an invalid file; kIoError, kNoSpace.
// Crash:   the file is written before training starts again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"

namespace stoker::app {

struct Rollback {
  uint64_t to_step = 0;
  uint64_t times = 0;  // in the run so far
};

// Chooses the newest checkpoint; or, where the run has come from a rollback to that one without
// getting as far as to another, the one before, because a state may be beyond help before its loss
// shows it. Later ones are set aside. `begun_at`: the step of the checkpoint that training began
// from; `times`: rollbacks of the run so far.
Status roll_back(FileSystem& files, const checkpoint::CheckpointStore& store,
                 const std::string& path, std::optional<uint64_t> begun_at, uint64_t times);

// Nothing: the run was never rolled back.
Result<std::optional<Rollback>> read_rollback(const std::string& path);

}  // namespace stoker::app
