// MemoryBudget: a limit on bytes that several threads share.
//
// Threads:  every method may be called from any thread.
// Blocking: wait_for() until bytes are available or a stop is requested.
// Errors:   none: if there is not enough left, the functions return false and take nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "shared/base/status.h"

namespace stoker::data::files {

class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit) : limit_(limit) {}

  bool try_take(uint64_t bytes);
  // Returns false immediately if `bytes` exceeds the limit, and when a stop is requested. A thread
  // that already holds bytes of this budget must not call it, because several such threads would
  // deadlock.
  bool wait_for(uint64_t bytes, const std::stop_token& stop);
  void release(uint64_t bytes);
  uint64_t taken() const;

 private:
  bool take(uint64_t bytes);  // requires mutex_

  const uint64_t limit_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  std::condition_variable_any freed_;
  uint64_t taken_ = 0;
};

// PrefetchedBytes: the bytes that one sample will read from files, read before it is decoded.
//
// SampleFiles::prefetch() fills it. A thread that holds it (Held) and calls Dataset::read() then gets
// these bytes from memory. It only changes when the disk is read: a range that was not prefetched
// is read from the file, and a failed read is stored as its error, so that it is not repeated.
//
// Threads:   one at a time: first the one that fetches, then the one that decodes.
// Blocking:  fetch() while the budget is exhausted, if constructed with a stop token.
// Ownership: the budget must outlive the object, which releases its bytes on destruction.

// A range of bytes as requested from one reader.
struct ByteRange {
  const void* reader = nullptr;  // the reader whose file number `file` is
  size_t file = 0;
  uint64_t offset = 0;
  uint64_t count = 0;
  bool operator==(const ByteRange&) const = default;
};

class PrefetchedBytes {
 public:
  // Ranges that do not fit into the budget now are not fetched.
  explicit PrefetchedBytes(MemoryBudget& budget) : budget_(budget) {}
  // The first range waits for the budget until a stop is requested.
  PrefetchedBytes(MemoryBudget& budget, std::stop_token stop)
      : budget_(budget), stop_(std::move(stop)) {}
  ~PrefetchedBytes();
  PrefetchedBytes(const PrefetchedBytes&) = delete;
  PrefetchedBytes& operator=(const PrefetchedBytes&) = delete;

  // During its lifetime, reads of the calling thread use `bytes`. Not nested.
  class Held {
   public:
    explicit Held(PrefetchedBytes* maybe_bytes) { of_thread_ = maybe_bytes; }
    ~Held() { of_thread_ = nullptr; }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
  };

  // ---- For file readers

  static PrefetchedBytes* current() { return of_thread_; }
  // Stores range.count bytes read by `read`, or its error.
  void fetch(const ByteRange& range, const std::function<Status(std::span<std::byte>)>& read);
  // Empty if the range was not fetched. Each range is returned once.
  std::optional<Status> try_take(const ByteRange& range, std::span<std::byte> bytes);
  std::optional<Status> try_take(const ByteRange& range, std::vector<std::byte>& bytes);

  // Whether everything fetched was used.
  bool all_consumed() const;
  // How long fetch() waited for the budget.
  std::chrono::nanoseconds waited_for_room() const { return waited_for_room_; }

 private:
  struct Part {
    ByteRange range;
    Status status;
    std::vector<std::byte> bytes;
    bool consumed = false;
  };
  bool reserve(uint64_t bytes);
  Part* find_part(const ByteRange& range);

  static inline constinit thread_local PrefetchedBytes* of_thread_ = nullptr;

  MemoryBudget& budget_;
  const std::optional<std::stop_token> stop_;
  uint64_t room_ = 0;  // bytes taken from the budget
  std::chrono::nanoseconds waited_for_room_{0};
  std::vector<Part> parts_;
};

}  // namespace stoker::data::files
