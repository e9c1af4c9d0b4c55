// FileReader: reads bytes of a table's files, with a bounded number of open descriptors.
//
// Threads:  every method may be called from any thread, concurrently.
// Blocking: as the disk does; up to a second for a descriptor where there is none; a failed read is
//           tried three times. The lock is held for a look into 64 slots, never while a file is
//           opened or read; for reads that belong together (ReadsTogether) once. What the thread
//           holds prefetched is taken from there.
// Owner:    the table must outlive the reader.
// Errors:   kNotFound, kPermission, kIoError; kCorrupt when the file is not the one that was
//           indexed (its size or time differs), or ends early. Each names the file, and the offset
//           where there is one.
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

  // Fills `bytes` from the file's `offset` on. The descriptor is kept for the next call.
  Status read(size_t file, uint64_t offset, std::span<std::byte> bytes) const;
  // The whole file into `bytes`, resized to fit; its descriptor is not kept. kCorrupt when it is
  // larger than `limit`.
  Status read_whole(size_t file, uint64_t limit, std::vector<std::byte>& bytes) const;
  // What a read() of the same range, or a read_whole() of the same file, will take from `bytes`.
  void prefetch(size_t file, uint64_t offset, uint64_t count, PrefetchedBytes& bytes) const;
  void prefetch_whole(size_t file, uint64_t limit, PrefetchedBytes& bytes) const;

  // While it lives, the calling thread keeps the descriptors that it reads with, a few of them, and
  // does not ask for them again. Not nested; the readers must outlive it.
  class ReadsTogether;

 private:
  static constexpr size_t kSlots = 64;
  struct Slot {
    size_t file = 0;
    UniqueFd fd;
    uint32_t users = 0;      // reads going on
    uint64_t last_used = 0;  // of turn_
  };
  struct Lease {
    int fd = -1;
    Slot* slot = nullptr;  // null: the descriptor is the caller's own
  };

  // From the file. Without advice to the kernel beforehand: one read is one wait for the disk with and
  // without it (docs/datasets.md).
  Status read_open(size_t file, uint64_t offset, std::span<std::byte> bytes) const;
  Result<UniqueFd> open(size_t file) const;
  Status read_from(int fd, size_t file, uint64_t offset, std::span<std::byte> bytes) const;
  Lease find(size_t file) const;
  Lease keep(size_t file, UniqueFd& fd) const;  // moves from `fd` when a slot takes it
  void release_slot(const Lease& lease, bool close) const;
  void close_idle() const;
  // The lease that the thread keeps, or one of its own; `own`: what is to be closed after the read.
  Result<Lease> lease_for(size_t file, UniqueFd& own) const;
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
