// HashedFiles: writes new files, each once from front to back, while other threads hash them.
//
// One core hashes 1.8 GB/s with SHA-256, less than a good disk writes: so each large file has a
// hashing thread of its own, and the calling thread writes and syncs meanwhile. What is hashed is
// what was given, not what the disk took: it finds what the way to the disk spoils.
//
// Threads:  calls on the file system come from the calling thread only, in the order of the files.
// Blocking: until all is on disk, or something failed.
// Errors:   kAlreadyExists, kNoSpace, kIoError, kPermission, naming the file. The files are then to
//           be removed: a failed sync is never tried again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::checkpoint {

// Pieces of memory that somebody else owns, and that nobody changes meanwhile.
struct FileContent {
  std::string name;
  std::vector<std::span<const std::byte>> pieces;

  uint64_t bytes() const;
};

struct WrittenFile {
  std::string name;
  uint64_t bytes = 0;
  std::string sha256;  // hex

  bool operator==(const WrittenFile&) const = default;
};

// Creates each file in `directory` (it must not exist) and reserves its room, for all before the
// first is written; writes them, and syncs them. The directory is not synced.
Result<std::vector<WrittenFile>> write_hashed_files(FileSystem& files, const std::string& directory,
                                                    std::span<const FileContent> contents);
Result<WrittenFile> write_hashed_file(FileSystem& files, const std::string& directory,
                                      const std::string& name, std::string_view text);

// Told of bytes as they are read or written.
using OnBytes = std::function<void(uint64_t bytes)>;

// The SHA-256 of a file of `bytes` bytes. kCorrupt: it is longer or shorter. kIoError.
Result<std::string> sha256_of_file(int fd, uint64_t bytes, const std::string& path,
                                   const OnBytes& on_bytes = {});

}  // namespace stoker::checkpoint
