// Resume checkpoint: selects the checkpoint that a run resumes from, and archives what is newer.
//
// Errors: kCorrupt (exit 65): there are checkpoints but none is valid, or the one given by --resume
//         is invalid; nothing is changed. kNotFound: the one given by --resume does not exist.
//         kIoError.
#pragma once

#include <optional>
#include <string>

#include "shared/base/file.h"
#include "shared/checkpoint/store.h"

namespace stoker::app {

// `resume` empty: the newest valid checkpoint of the store; nullopt if the store is empty. Rejected
// checkpoints are logged as errors.
Result<std::optional<checkpoint::VerifiedCheckpoint>> find_resume_checkpoint(
    const checkpoint::CheckpointStore& store, const std::string& resume);

// Renames the checkpoints after `step` to archived.<n>.<name>, which no program reads, so that
// their names can be used again.
Status archive_later_checkpoints(FileSystem& files, const checkpoint::CheckpointStore& store,
                                 uint64_t step);

// --fresh: moves the files of the previous run (checkpoints, eval, metrics, tensorboard, …) to
// RUN/archive-<n>/.
Status archive_run(FileSystem& files, const std::string& run_dir);

}  // namespace stoker::app
