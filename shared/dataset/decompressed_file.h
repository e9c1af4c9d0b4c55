// unpacked file: what packed bytes stand for, written to a file beside the index, because a sample in
// the middle of a deflate stream cannot be read without all before it.
//
// Blocking: unpacks and writes everything, and waits for the disk.
// Errors:   kCorrupt (the packed bytes, or their number, are not as promised), kNoSpace, kIoError,
//           kPermission; no file of that name has then been made or changed.
// Crash:    a file of another name is left, which the next run of remove_temporary_files() takes away.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shared/base/status.h"
#include "shared/dataset/inflater.h"
#include "shared/dataset/scan_progress.h"

namespace stoker::dataset {

struct DecompressOptions {
  Packed from;
  uint64_t bytes = 0;                  // exactly so many must come out
  std::optional<uint32_t> crc32 = {};  // of them, where the container says it (gzip checks its own)
};

// Appends the file that was made to `made`, whose root is empty.
Status decompress_file(const FileReader& reader, const FileTable& files,
                       const DecompressOptions& options, const std::string& path,
                       const ScanProgress& progress, FileTable& made);

}  // namespace stoker::dataset
