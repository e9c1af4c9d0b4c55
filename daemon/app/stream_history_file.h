// stream_history_file: RUN/stream_history, what stokerd had read of an input that cannot be read again
// when it ended, and what the newest checkpoint does not have.
//
// A checkpoint has what was read until it was taken, and more is read until the process ends. The
// file belongs to that checkpoint, and a resume from another one ignores it.
//
// Threads:  stateless functions; the trainer thread of the process that holds LOCK.
// Blocking: for the disk.
// Errors:   write: as write_file_atomically(). read: kCorrupt, kIoError, kPermission.
// Format:   a JSON object in one line (start, begin, complete, is_last, and sha256 of the
//           bytes), then the bytes.
#pragma once

#include <optional>
#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/feed/stream_state.h"

namespace stoker::app {

// `start`: what the bytes follow, the hash of the manifest of a checkpoint; if the run has none yet,
// the fingerprint of its data.
Status write_stream_history(FileSystem& files, const std::string& path, const std::string& start,
                            const feed::StreamHistory& history);
// nullopt: there is no file, or it follows something else.
Result<std::optional<feed::StreamHistory>> read_stream_history(const std::string& path,
                                                               const std::string& start);
// read_stream_history() for a process that will read more: after that, the next reader is told that
// it is not the last one. An unusable file is logged, and counts as none.
Result<std::optional<feed::StreamHistory>> take_stream_history(FileSystem& files,
                                                               const std::string& path,
                                                               const std::string& start);

}  // namespace stoker::app
