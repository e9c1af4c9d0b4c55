// LastCheckpoint: the newest checkpoint that a run has committed, recorded in the run directory but
// outside of checkpoints/. With it, a run that has not saved yet differs from one whose checkpoints
// are missing because a volume is not mounted or a directory was moved.
//
// Written after the commit and before retention: after a crash or an error it can name an older
// checkpoint than the newest one, or be missing, but never names one that was not committed.
//
// Threads: stateless functions; the trainer process, which holds LOCK, is the only writer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::run {

struct LastCheckpoint {
  uint64_t step = 0;
  std::string manifest_sha256;

  bool operator==(const LastCheckpoint&) const = default;
};

// `path` is RunLayout::last_checkpoint_file(). nullopt: the run has not saved yet, or only with a
// release that did not record it. kCorrupt: the file is invalid; kIoError, kPermission.
Result<std::optional<LastCheckpoint>> read_last_checkpoint(const std::string& path);
// As write_file_atomically().
Status write_last_checkpoint(FileSystem& files, const std::string& path,
                             const LastCheckpoint& last);

}  // namespace stoker::run
