// Rollback: returns a run with a nonfinite loss to a checkpoint (train.on_nonfinite: rollback).
// RUN/rollback.json records which one and how often, so that a daemon that is killed meanwhile
// resumes with the same learning rate.
//
// Threads: one, holding the lock of the run directory.
// Errors:  kCorrupt: no checkpoint to return to, or an invalid file; kIoError, kNoSpace.
// Crash:   the file is written before training starts again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

struct Rollback {
  uint64_t to_step = 0;
  uint64_t times = 0;  // rollbacks of the run so far
};

// Selects the newest checkpoint; if a rollback to that one did not lead to another checkpoint, the
// one before, because a state can diverge before its loss is nonfinite. Later checkpoints are
// archived. `resumed_from`: the step of the checkpoint that training resumed from; `times`:
// rollbacks so far.
Status roll_back(FileSystem& files, const checkpoint::CheckpointStore& store,
                 const run::RunLayout& layout, std::optional<uint64_t> resumed_from,
                 uint64_t times);

std::string to_json(const Rollback& rollback);
// nullopt: not from to_json().
std::optional<Rollback> parse_rollback(const std::string& text);
// nullopt: the run was never rolled back.
Result<std::optional<Rollback>> read_rollback(const std::string& path);

}  // namespace stoker::app
