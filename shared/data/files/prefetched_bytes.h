// MemoryBudget: a limit on bytes that several threads share.
//
// Threads:  every method may be called from any thread.
// Blocking: wait_for() until there is room, or a stop is requested.
// Errors:   none: what has no room is told by false, and nothing is taken.
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
  // False at once where there can never be room, and when a stop is requested. Only for a thread
  // that holds nothing of this budget: those that hold some and wait for more would wait for each
  // other.
  bool wait_for(uint64_t bytes, const std::stop_token& stop);
  void release(uint64_t bytes);
  uint64_t taken() const;

 private:
  bool take(uint64_t bytes);  // with mutex_ held

  const uint64_t limit_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  std::condition_variable_any freed_;
  uint64_t taken_ = 0;
};

// PrefetchedBytes: what one sample will read from files, read before it is decoded.
//
// Dataset::prefetch() fills it; a thread that holds it (Held) and then calls Dataset::read() gets
// these bytes from memory. It is a hint, and changes nothing but when the disk is asked: a range
// that is not here is read from the file, and one that could not be read is here as its error, so
// that it is tried no more often than without.
//
// Threads:  one at a time: the one that fetches, then the one that decodes.
// Blocking: fetch() while the budget has no room, where it may.
// Owner:    the budget must outlive the object, which gives back what it took.

// Bytes of a file as one reader is asked for them.
struct ByteRange {
  const void* reader = nullptr;  // whose own number `file` is
  size_t file = 0;
  uint64_t offset = 0;
  uint64_t count = 0;
  bool operator==(const ByteRange&) const = default;
};

class PrefetchedBytes {
 public:
  // Ranges for which there is no room now are not fetched.
  explicit PrefetchedBytes(MemoryBudget& budget) : budget_(budget) {}
  // The first range waits for room until the stop.
  PrefetchedBytes(MemoryBudget& budget, std::stop_token stop)
      : budget_(budget), stop_(std::move(stop)) {}
  ~PrefetchedBytes();
  PrefetchedBytes(const PrefetchedBytes&) = delete;
  PrefetchedBytes& operator=(const PrefetchedBytes&) = delete;

  // While it lives, reads of the calling thread take from `bytes`. Not nested.
  class Held {
   public:
    explicit Held(PrefetchedBytes* maybe_bytes) { of_thread_ = maybe_bytes; }
    ~Held() { of_thread_ = nullptr; }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
  };

  // ---- For readers of files

  static PrefetchedBytes* current() { return of_thread_; }
  // Keeps what `read` makes of range.count bytes, or its error.
  void fetch(const ByteRange& range, const std::function<Status(std::span<std::byte>)>& read);
  // Nothing where the range was not fetched. Each is given once.
  std::optional<Status> try_take(const ByteRange& range, std::span<std::byte> bytes);
  std::optional<Status> try_take(const ByteRange& range, std::vector<std::byte>& bytes);

  // Whether all that was fetched was taken.
  bool all_consumed() const;
  // How long fetch() waited for room.
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
  uint64_t room_ = 0;  // that was taken from the budget
  std::chrono::nanoseconds waited_for_room_{0};
  std::vector<Part> parts_;
};

}  // namespace stoker::data::files
