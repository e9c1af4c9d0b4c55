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
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/memory_budget.h"

namespace stoker::dataset {

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

}  // namespace stoker::dataset
