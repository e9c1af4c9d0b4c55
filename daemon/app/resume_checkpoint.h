// Resume checkpoint: selects the checkpoint that a run resumes from, and archives what is newer.
//
// The caller holds run/LOCK, so no process can be deleting a checkpoint: one that is locked
// exclusively is in use by a program that is not stoker's, such as a backup. An older checkpoint is
// never used instead.
//
// Blocking: find_resume_checkpoint() while a checkpoint is locked exclusively, up to a timeout.
// Errors:   kCorrupt (exit 65): there are checkpoints but none is valid; there are none although
//           the run has saved before; or the one given by --resume is invalid. Nothing is changed.
//           kNotFound: the one given by --resume does not exist.
//           kBusy (exit 75): a checkpoint stays locked; names its path and the process. kIoError.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/checkpoint/store.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

// How to wait for an exclusive lock.
struct LockWait {
  // Called before each further attempt with what is waited for; returns after a moment. An error
  // ends the wait and is returned. Required.
  std::function<Status(const std::string& waiting_for)> pause;
  Clock& clock = system_clock();
  std::chrono::seconds timeout{30};  // for all checkpoints together
};

// `resume` empty: the newest valid checkpoint of the store; nullopt if the store is empty and the
// run has never saved. Rejected checkpoints are logged as errors; a wait, and a checkpoint that is
// not the last one that the run has saved, as a warning.
Result<std::optional<checkpoint::VerifiedCheckpoint>> find_resume_checkpoint(
    const checkpoint::CheckpointStore& store, const run::RunLayout& layout,
    const std::string& resume, const LockWait& lock_wait);

// kCorrupt if the store is empty although the run has saved before (run/last_checkpoint.json).
Status check_checkpoints_exist(const checkpoint::CheckpointStore& store,
                               const run::RunLayout& layout);

// Renames the checkpoints after `step` to archived.<n>.<name>, which no program reads, so that
// their names can be used again. Before that it completes run/lineage.jsonl, and it removes run/last_checkpoint.json: they are missing
// on purpose.
Status archive_later_checkpoints(FileSystem& files, const checkpoint::CheckpointStore& store,
                                 const run::RunLayout& layout, uint64_t step);

// Whether `resumed` is in `store`, by whichever path it was opened.
bool is_checkpoint_of(const checkpoint::CheckpointStore& store,
                      const checkpoint::VerifiedCheckpoint& resumed);

// Records in run/lineage.jsonl that the run starts from nothing: results that are already there are of another one. An
// error is logged.
void record_start(FileSystem& files, const run::RunLayout& layout);

// Records `resumed` in run/lineage.jsonl, and as the last checkpoint of the run if it is one of this run. An error
// is logged.
void record_resumed_checkpoint(FileSystem& files, const checkpoint::CheckpointStore& store,
                               const run::RunLayout& layout,
                               const checkpoint::VerifiedCheckpoint& resumed);

// --fresh: moves the files of the previous run (checkpoints, eval, metrics, tensorboard, …) to
// RUN/archive-<n>/. kInvalidArgument: one of them is a mount point.
Status archive_run(FileSystem& files, const std::string& run_dir);

}  // namespace stoker::app
