// FileSystem: interface to the file operations that durability depends on, so that a test can fail
// the Nth operation, fill the disk, or discard unsynced data.
//
// Threads:  every method may be called from any thread.
// Blocking: like the underlying system calls; sync() waits for the disk.
// Errors:   kNoSpace, kNotFound, kPermission, kIoError, with the path and the text of errno. A
//           failed sync() must never be retried on the same file, because the kernel has marked the
//           lost pages clean.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/status.h"

namespace stoker {

// RAII owner of a file descriptor.
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

  // Adds O_CLOEXEC.
  virtual Result<UniqueFd> open(const std::string& path, int flags, mode_t mode = 0640) = 0;
  // Writes all of `bytes` at the file position. On failure, the amount written is unspecified.
  virtual Status write(int fd, std::span<const std::byte> bytes, const std::string& path) = 0;
  // Allocates disk space for the first `bytes` bytes of a file without changing its size. kNoSpace
  // if the disk is full or a quota or limit forbids it. Returns ok if the file system does not
  // support preallocation; a full disk is then reported by write().
  virtual Status reserve(int fd, uint64_t bytes, const std::string& path);
  // Reads up to bytes.size() bytes from `offset`; fewer only at the end of the file.
  virtual Result<size_t> read_at(int fd, uint64_t offset, std::span<std::byte> bytes,
                                 const std::string& path) = 0;
  virtual Status sync(int fd, const std::string& path) = 0;
  virtual Status sync_directory(const std::string& path) = 0;
  // One level; kAlreadyExists if it exists.
  virtual Status make_directory(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;  // replaces `to`
  // kAlreadyExists if `to` exists.
  virtual Status rename_noreplace(const std::string& from, const std::string& to) = 0;
  virtual Status remove_file(const std::string& path) = 0;
  // Ok if the path does not exist; never follows a symlink.
  virtual Status remove_tree(const std::string& path) = 0;
  // Available to an unprivileged user.
  virtual Result<uint64_t> free_bytes(const std::string& path) = 0;
};

FileSystem& default_file_system();

// From now on, what default_file_system() creates is writable for its group if it is readable for it
// (run.allow_group_access), whatever the umask.
void allow_group_access();
// `mode` with that.
mode_t mode_of_new_file(mode_t mode);

// Reads a complete regular file. kInvalidArgument if it is larger than `max_bytes` or not a regular
// file.
Result<std::string> read_file(const std::string& path, uint64_t max_bytes);

// A line of a file.
struct FileLine {
  std::string_view text;    // without its end
  uint64_t begin = 0;       // offset in the file
  uint64_t end = 0;         // of the next line
  bool is_complete = true;  // false: the last line, without an end
};
// Calls `on_line` with each line of a regular file until it returns an error. The file is read in
// blocks, so that memory does not depend on its size. A longer line is passed without what is behind
// its first `max_line_bytes` bytes. kInvalidArgument: not a regular file, or more than 16 GiB.
Status for_each_line(const std::string& path, uint64_t max_line_bytes,
                     const std::function<Status(const FileLine&)>& on_line);

// Fills `out` with the bytes of the file from `offset`. kCorrupt if the file ends before.
Status read_exactly(int fd, uint64_t offset, std::span<std::byte> out, const std::string& path);

// Name of a temporary file for `path` in the same directory: ".<name>.tmp-<16 random digits>". A
// process id would not do, because processes in other containers and on other hosts have the same
// ones. To be opened with kNewFile.
std::string temporary_path(const std::string& path);
// Flags of open() for a file that must not exist yet, not even as a symlink.
inline constexpr int kNewFile = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;

// Replaces `path` atomically: after a crash or power cut it contains either the old or the new
// content. Writes temporary_path() in the same directory, syncs, renames and syncs the directory.
// On failure `path` is unchanged.
Status write_file_atomically(FileSystem& files, const std::string& path, std::string_view content);
// The same with mode 0600: only the owner can read it.
Status write_private_file_atomically(FileSystem& files, const std::string& path,
                                     std::string_view content);

// Removes the temporary files that a killed write_file_atomically() left in `directory` (not in
// subdirectories). No other process may be writing there.
Status remove_temporary_files(FileSystem& files, const std::string& directory);

// Creates the directory and its missing parents.
Status make_directories(FileSystem& files, const std::string& path);

// Sorted names of the directory entries, without "." and "..". kNotFound, kIoError, kPermission.
Result<std::vector<std::string>> list_directory(const std::string& path);

std::string join_path(std::string_view directory, std::string_view name);

// flock() on a file that is created if missing. Held until `fd` is closed or the process ends in
// any way.
struct FileLock {
  UniqueFd fd;
};
// kBusy (with the text that the holder wrote) if another process holds the lock. `holder` is
// written to the file for diagnostics.
Result<FileLock> lock_file(const std::string& path, std::string_view holder);
// The same for a file that is already open for reading and writing; `path` is for messages.
Result<FileLock> lock_file(UniqueFd fd, const std::string& path, std::string_view holder);
// True if any process holds the lock; false if the file does not exist. Does not keep a lock.
Result<bool> is_locked(const std::string& path);

}  // namespace stoker
