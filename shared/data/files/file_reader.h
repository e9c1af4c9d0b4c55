// FileReader: reads bytes from the files of a table, with a bounded number of open descriptors.
//
// Threads:   every method may be called from any thread, concurrently.
// Blocking:  for the disk; for up to a second if the process has no free descriptor. A read that
//            fails with EIO is tried three times. The lock is held while 64 slots are searched,
//            never while a file is opened or read; with ReadsTogether it is taken once for several
//            reads. Bytes that the thread has prefetched are not read again.
// Ownership: the table must outlive the reader.
// Errors:    kNotFound, kPermission, kIoError; kCorrupt if the file differs from the indexed one in
//            size, time or inode, or ends early. Each names the file and, if known, the offset.
//
// A file that changes while it is read must not give samples that no version of it has. Size and time
// are therefore compared after the bytes were read; a writer changes the time before the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/prefetched_bytes.h"

namespace stoker::data::files {

class FileReader {
 public:
  explicit FileReader(const FileTable& files) : files_(files) {}

  // Fills `bytes` from `offset` of the file. The descriptor is cached for later calls.
  Status read(size_t file, uint64_t offset, std::span<std::byte> bytes) const;
  // Reads the complete file into `bytes`, which is resized. The descriptor is not cached. kCorrupt
  // if the file is larger than `limit`.
  Status read_whole(size_t file, uint64_t limit, std::vector<std::byte>& bytes) const;
  // Stores in `bytes` what a later read() of the same range, or read_whole() of the same file, will
  // use.
  void prefetch(size_t file, uint64_t offset, uint64_t count, PrefetchedBytes& bytes) const;
  void prefetch_whole(size_t file, uint64_t limit, PrefetchedBytes& bytes) const;

  // During its lifetime, the calling thread reuses the descriptors of its reads (up to kMaxCount)
  // without taking the lock, and does not compare these files after each read: the bytes must not be
  // used before check(). Not nested; the readers must outlive it.
  class ReadsTogether;
  // Of that of the calling thread; ok if there is none.
  static Status check_reads();

 private:
  static constexpr size_t kSlots = 64;
  struct Slot {
    size_t file = 0;
    UniqueFd fd;
    uint32_t users = 0;      // reads in progress
    uint64_t last_used = 0;  // value of turn_
  };
  struct Lease {
    int fd = -1;
    Slot* slot = nullptr;  // null: the caller owns the descriptor
  };

  // Reads from the file. No posix_fadvise() beforehand, because a read waits for the disk once with
  // or without it.
  Status read_open(size_t file, uint64_t offset, std::span<std::byte> bytes) const;
  Result<UniqueFd> open(size_t file) const;
  // kCorrupt if the open file is not the indexed one, or not any more.
  Status check_open(int fd, size_t file) const;
  Status read_from(int fd, size_t file, uint64_t offset, std::span<std::byte> bytes) const;
  Lease find(size_t file) const;
  Lease keep(size_t file, UniqueFd& fd) const;  // moves from `fd` if a slot is available
  void release_slot(const Lease& lease, bool close) const;
  void close_idle() const;
  // The lease that the thread already holds, or a new one. `own` receives a descriptor to be closed
  // after the read.
  Result<Lease> lease_for(size_t file, UniqueFd& own) const;
  // Whether ReadsTogether::check() will compare the file, because end_lease() leaves it to the thread.
  bool is_checked_later(const Lease& lease, size_t file) const;
  void end_lease(const Lease& lease, size_t file, bool failed) const;

  // Constant after construction.
  const FileTable& files_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  mutable std::array<Slot, kSlots> slots_;
  mutable uint64_t turn_ = 0;
};

class FileReader::ReadsTogether {
 public:
  ReadsTogether() { of_thread_ = this; }
  ~ReadsTogether();
  ReadsTogether(const ReadsTogether&) = delete;
  ReadsTogether& operator=(const ReadsTogether&) = delete;

  // After the reads: whether their files are still the indexed ones. Otherwise each of them must be
  // read again, after this object has gone, to find those that failed.
  Status check() const;

 private:
  friend class FileReader;
  static constexpr size_t kMaxCount = 4;
  struct OpenFile {
    const FileReader* reader = nullptr;  // null: none
    size_t file = 0;
    Lease lease;
  };
  OpenFile* find_open_file(const FileReader* reader, size_t file);

  static inline constinit thread_local ReadsTogether* of_thread_ = nullptr;

  std::array<OpenFile, kMaxCount> open_files_;
};

}  // namespace stoker::data::files
