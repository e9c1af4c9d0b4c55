// FailingFileSystem: the real file system with an injectable full disk and blockable writes.
//
// Threads: every method may be called from any thread.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>

#include "shared/base/file.h"

namespace stoker::metrics {

class FailingFileSystem final : public FileSystem {
 public:
  // The first write that exceeds this number of bytes writes what fits and fails with ENOSPC.
  void fail_after_bytes(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_left_ = bytes;
  }
  void repair() { fail_after_bytes(std::numeric_limits<uint64_t>::max()); }
  // Writes block until unblock_writes().
  void block_writes() {
    const std::lock_guard lock(mutex_);
    is_blocked_ = true;
  }
  void unblock_writes() {
    const std::lock_guard lock(mutex_);
    is_blocked_ = false;
    changed_.notify_all();
  }
  void wait_until_write_is_blocked() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0; });
  }

  Status write(int fd, std::span<const std::byte> bytes, const std::string& path) override {
    size_t fits = 0;
    {
      std::unique_lock lock(mutex_);
      ++waiting_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !is_blocked_; });
      --waiting_;
      fits = static_cast<size_t>(std::min<uint64_t>(bytes_left_, bytes.size()));
      if (bytes_left_ != std::numeric_limits<uint64_t>::max()) bytes_left_ -= fits;
    }
    if (fits == bytes.size()) return default_file_system().write(fd, bytes, path);
    (void)default_file_system().write(fd, bytes.first(fits), path);
    return Status::from_errno(ENOSPC, "write " + path);
  }

  Result<UniqueFd> open(const std::string& path, int flags, mode_t mode) override {
    return default_file_system().open(path, flags, mode);
  }
  Result<size_t> read_at(int fd, uint64_t offset, std::span<std::byte> bytes,
                         const std::string& path) override {
    return default_file_system().read_at(fd, offset, bytes, path);
  }
  Status sync(int fd, const std::string& path) override {
    return default_file_system().sync(fd, path);
  }
  Status sync_directory(const std::string& path) override {
    return default_file_system().sync_directory(path);
  }
  Status make_directory(const std::string& path) override {
    return default_file_system().make_directory(path);
  }
  Status rename(const std::string& from, const std::string& to) override {
    return default_file_system().rename(from, to);
  }
  Status rename_noreplace(const std::string& from, const std::string& to) override {
    return default_file_system().rename_noreplace(from, to);
  }
  Status remove_file(const std::string& path) override {
    return default_file_system().remove_file(path);
  }
  Status remove_tree(const std::string& path) override {
    return default_file_system().remove_tree(path);
  }
  Result<uint64_t> free_bytes(const std::string& path) override {
    return default_file_system().free_bytes(path);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t bytes_left_ = std::numeric_limits<uint64_t>::max();
  bool is_blocked_ = false;
  int waiting_ = 0;
};

}  // namespace stoker::metrics
