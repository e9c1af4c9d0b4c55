// SavePhase: the phase of a run in which a file call occurs.
//
// Threads: one.
#pragma once

#include "tests/reliability/tracer.h"

namespace stoker::test {

enum class SavePhase {
  kStart,      // before the first save: lock, cleanup, resume
  kTensors,    // the temporary directory and the tensor files
  kManifest,   // after the sync of the tensors: the manifest
  kSums,       // after the sync of the manifest: checksums and the directory sync, up to the rename
  kRenamed,    // after the rename, before the parent directory is synced
  kRetention,  // from then until the next save or the end of the run
};

class SavePhaseWatch {
 public:
  // `call` has not been executed yet: a kill at a rename comes before the rename.
  SavePhase at(const FileCall& call);

 private:
  SavePhase next_ = SavePhase::kStart;
};

}  // namespace stoker::test
