// hashed_files: writes new files sequentially while other threads compute their hashes.
//
// SHA-256 runs at 1.8 GB/s per core, less than the write speed of a good disk. Each large file
// therefore gets its own hashing thread, while the calling thread writes and syncs. The hash covers
// the data in memory, not the data read back from disk, so that it detects corruption on the way to
// the disk.
//
// Threads:  only the calling thread calls the file system, in the order of the files.
// Blocking: until all files are synced or an error occurs.
// Errors:   kAlreadyExists, kNoSpace, kIoError, kPermission, with the name of the file;
//           kOutOfMemory. The caller must then remove the files, because a failed sync must not be
//           retried.
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

// Content of a file. The pieces are not owned and must not change while they are being written.
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

// Progress callback for bytes read or written.
using OnBytes = std::function<void(uint64_t bytes)>;

// Creates each file in `directory` (it must not exist), reserves the disk space of all files before
// the first write, then writes and syncs them. The directory is not synced.
Result<std::vector<WrittenFile>> write_hashed_files(FileSystem& files, const std::string& directory,
                                                    std::span<const FileContent> contents,
                                                    const OnBytes& on_bytes = {});
Result<WrittenFile> write_hashed_file(FileSystem& files, const std::string& directory,
                                      const std::string& name, std::string_view text);

// The SHA-256 of a file of `bytes` bytes. kCorrupt: the file is longer or shorter. kIoError.
Result<std::string> sha256_of_file(int fd, uint64_t bytes, const std::string& path,
                                   const OnBytes& on_bytes = {});

// Whether a file of `bytes` bytes is `file`. kCorrupt: size or SHA-256 differ from what was `verb`
// ("committed", "written"). Otherwise as sha256_of_file().
Status verify_file(int fd, uint64_t bytes, const WrittenFile& file, const std::string& path,
                   const std::string& verb, const OnBytes& on_bytes = {});

}  // namespace stoker::checkpoint
