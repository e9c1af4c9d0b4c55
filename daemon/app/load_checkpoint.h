// load_checkpoint: restores the state of a resumed run from a checkpoint, with the changes that are
// allowed.
//
// Threads: the trainer thread.
// Errors:  kMismatch: a change that is not allowed, with the first differences and the flag. Others
//          as TrainingState::restore(). The state is then unusable, and nothing on disk is changed.
#pragma once

#include "daemon/app/resume_compatibility.h"
#include "daemon/train/training_state.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"

namespace stoker::app {

// `now`: the manifest fields of the run's next checkpoints. `changes`: those already found in the
// configuration. Returns whether there are any changes in total.
Result<bool> load_checkpoint(train::TrainingState& state,
                             const checkpoint::VerifiedCheckpoint& start,
                             const checkpoint::Manifest& now, ResumeCompatibility changes,
                             const AllowedChanges& allowed);

}  // namespace stoker::app
