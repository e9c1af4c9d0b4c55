// FileSystem: the file operations that durability depends on, behind one seam, so that a test can
// fail the Nth of them, fill the disk, or forget what was not synced.
//
// Threads:  every method may be called from any thread.
// Blocking: as the system calls do; sync() waits for the disk.
// Errors:   the path and errno's text; kNoSpace, kNotFound, kPermission, kIoError. A failed sync()
//           must never be retried on the same file: the kernel has marked the lost pages clean.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/status.h"

namespace stoker {

// Owns one file descriptor and closes it.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual Result<UniqueFd> open(const std::string& path, int flags,
                                mode_t mode = 0640) = 0;  // O_CLOEXEC is added
  // Writes all of `bytes` at the file's position, or fails with what was written unspecified.
  virtual Status write(int fd, std::span<const std::byte> bytes, const std::string& path) = 0;
  // Takes the room on the disk for the first `bytes` of a file, which stays as long as it is. kNoSpace
  // where there is none, or a quota or limit forbids it; ok where the file system knows no such
  // thing: then write() finds out.
  virtual Status reserve(int fd, uint64_t bytes, const std::string& path);
  // Reads up to bytes.size() from `offset`; fewer only at the end of the file.
  virtual Result<size_t> read_at(int fd, uint64_t offset, std::span<std::byte> bytes,
                                 const std::string& path) = 0;
  virtual Status sync(int fd, const std::string& path) = 0;
  virtual Status sync_directory(const std::string& path) = 0;
  virtual Status make_directory(
      const std::string& path) = 0;  // one level; kAlreadyExists where it is there
  virtual Status rename(const std::string& from, const std::string& to) = 0;  // replaces `to`
  virtual Status rename_noreplace(const std::string& from,
                                  const std::string& to) = 0;  // kAlreadyExists
  virtual Status remove_file(const std::string& path) = 0;
  virtual Status remove_tree(
      const std::string& path) = 0;  // ok where nothing is there; never follows a symlink
  virtual Result<uint64_t> free_bytes(
      const std::string& path) = 0;  // what an unprivileged user may still write
};

FileSystem& default_file_system();

// Reads a whole regular file. kInvalidArgument when it is larger than `max_bytes`, or is not a
// regular file.
Result<std::string> read_file(const std::string& path, uint64_t max_bytes);

// Fills `out` with the file's bytes from `offset` on. kCorrupt: the file ends before.
Status read_exactly(int fd, uint64_t offset, std::span<std::byte> out, const std::string& path);

// Replaces `path` so that a reader, or a power cut, sees the old content or the new, never a part:
// write to ".<name>.tmp-<pid>" beside it, sync, rename, sync the directory. On failure `path` is
// unchanged.
Status write_file_atomically(FileSystem& files, const std::string& path, std::string_view content);

// Removes what a write_file_atomically() that was killed has left in `directory` (not below it). Only
// where no other process writes there now.
Status remove_temporary_files(FileSystem& files, const std::string& directory);

// Makes the directory and the missing ones above it.
Status make_directories(FileSystem& files, const std::string& path);

// The names in a directory, without "." and "..", sorted. kNotFound, kIoError, kPermission.
Result<std::vector<std::string>> list_directory(const std::string& path);

std::string join_path(std::string_view directory, std::string_view name);

// flock on a file that is created when missing. Held until `fd` is closed or the process dies,
// however it dies.
struct FileLock {
  UniqueFd fd;
};
// kBusy (with the text that the holder wrote) when another process holds it. `holder` is written
// for people to read.
Result<FileLock> lock_file(const std::string& path, std::string_view holder);
// Whether somebody holds the lock now; false where there is no such file. Takes nothing.
Result<bool> is_locked(const std::string& path);

}  // namespace stoker
