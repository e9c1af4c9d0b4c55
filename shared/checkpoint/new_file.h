// NewFile: a file that is written front to back and is there as a whole, or not at all.
//
// Threads: one object per thread.
// Owner:   what was not committed is removed with the object.
// Errors:  kAlreadyExists: something has the name, which is left alone; kNoSpace, kIoError,
//          kPermission.
// Crash:   leaves ".NAME.tmp-PID" beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::checkpoint {

class NewFile {
 public:
  // `files` must outlive the object.
  static Result<NewFile> create(FileSystem& files, const std::string& path);
  NewFile(NewFile&&) noexcept = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  Status append(std::span<const std::byte> bytes);
  uint64_t bytes() const { return bytes_; }  // appended so far
  // Writes the rest, syncs, and gives the file its name.
  Status commit();

 private:
  NewFile(FileSystem& files, std::string path, std::string temporary, UniqueFd fd)
      : files_(&files),
        path_(std::move(path)),
        temporary_(std::move(temporary)),
        fd_(std::move(fd)) {}
  Status flush();

  FileSystem* files_;
  std::string path_;
  std::string temporary_;
  UniqueFd fd_;  // closed: committed, or moved from
  std::vector<std::byte> gathered_;
  uint64_t bytes_ = 0;
};

}  // namespace stoker::checkpoint
