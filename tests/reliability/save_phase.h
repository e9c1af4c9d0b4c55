// SavePhase: where in the life of a run a call on its directory falls.
//
// Threads: one.
#pragma once

#include "tests/reliability/tracer.h"

namespace stoker::test {

enum class SavePhase {
  kStart,      // before the first save: lock, clean-up, resume
  kTensors,    // the hidden directory and the files of tensors
  kManifest,   // the tensors are synced: the manifest
  kSums,       // the manifest is synced: sums, the hidden directory's sync, up to the rename
  kRenamed,    // renamed, and the directory above not synced yet
  kRetention,  // from there to the next save, or to the end of the run
};

class SavePhaseWatch {
 public:
  // `call` is not done yet: a kill at a rename is one before it.
  SavePhase at(const FileCall& call);

 private:
  SavePhase next_ = SavePhase::kStart;
};

}  // namespace stoker::test
