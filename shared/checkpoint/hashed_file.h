// HashedFile: writes a new file once from front to back and hashes what it writes.
//
// Threads: one object per thread.
// Errors:  kAlreadyExists, kNoSpace, kIoError, kPermission. After an error the object is spent, and
//          the file is to be removed: a failed sync is never tried again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/sha256.h"
#include "shared/checkpoint/safetensors.h"

namespace stoker::checkpoint {

class HashedFile {
 public:
  static Result<HashedFile> create(FileSystem& files, const std::string& directory,
                                   const std::string& name);

  Status append(std::span<const std::byte> bytes);
  Status append(std::string_view text) { return append(std::as_bytes(std::span(text))); }
  // Writes the rest, syncs, closes.
  Result<WrittenFile> finish();

 private:
  HashedFile(FileSystem& files, UniqueFd fd, std::string path, std::string name);
  Status flush();
  Status put(std::span<const std::byte> bytes);  // hash, then write

  FileSystem& files_;
  UniqueFd fd_;
  std::string path_;
  WrittenFile written_;
  Sha256 hash_;
  std::vector<std::byte> gathered_;  // small pieces, until they make a big write
};

// create, append, finish.
Result<WrittenFile> write_hashed_file(FileSystem& files, const std::string& directory,
                                      const std::string& name, std::string_view content);

// The SHA-256 of a file of `bytes` bytes. kCorrupt: it is longer or shorter. kIoError.
Result<std::string> sha256_of_file(int fd, uint64_t bytes, const std::string& path);

}  // namespace stoker::checkpoint
