// StartPoint: where a run begins: at nothing, or at a checkpoint that verifies.
//
// Errors: kCorrupt (exit 65): checkpoints are there and none is valid, or the one named by --resume
//         is not; nothing is changed. kNotFound: --resume names nothing. kIoError.
#pragma once

#include <optional>
#include <string>

#include "shared/base/file.h"
#include "shared/checkpoint/store.h"

namespace stoker::app {

// `resume` empty: the newest valid checkpoint of the store, none where it has none. Each rejected
// one is logged loudly.
Result<std::optional<checkpoint::VerifiedCheckpoint>> find_resume_checkpoint(
    const checkpoint::CheckpointStore& store, const std::string& resume);

// Checkpoints after `step` cannot be written again under their names: they are renamed to
// archived.<n>.<name>, which no program reads.
Status archive_later_checkpoints(FileSystem& files, const checkpoint::CheckpointStore& store,
                                 uint64_t step);

// --fresh: everything that a run left (checkpoints, eval, metrics, tensorboard, …) is moved to
// RUN/before-<n>/.
Status archive_run(FileSystem& files, const std::string& run_dir);

}  // namespace stoker::app
