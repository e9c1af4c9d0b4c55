// FailingFileSystem: the real file system with an injectable full disk and blockable writes.
//
// Threads: every method may be called from any thread.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>

#include "tests/support/forwarding_files.h"

namespace stoker::metrics {

class FailingFileSystem final : public test::ForwardingFiles {
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

  uint64_t num_writes() {
    const std::lock_guard lock(mutex_);
    return num_writes_;
  }

  Status write(int fd, std::span<const std::byte> bytes, const std::string& path) override {
    size_t fits = 0;
    {
      std::unique_lock lock(mutex_);
      ++num_writes_;
      ++waiting_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !is_blocked_; });
      --waiting_;
      fits = static_cast<size_t>(std::min<uint64_t>(bytes_left_, bytes.size()));
      if (bytes_left_ != std::numeric_limits<uint64_t>::max()) bytes_left_ -= fits;
    }
    if (fits == bytes.size()) return ForwardingFiles::write(fd, bytes, path);
    (void)ForwardingFiles::write(fd, bytes.first(fits), path);
    return Status::from_errno(ENOSPC, "write " + path);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t bytes_left_ = std::numeric_limits<uint64_t>::max();
  bool is_blocked_ = false;
  int waiting_ = 0;
  uint64_t num_writes_ = 0;
};

}  // namespace stoker::metrics
