// ElementLimit: limits the memory of the elements that a stream holds between its readers and the
// ring.
//
// As many elements as a batch needs always pass, so that a limit below their size delays the readers
// but never stops the stream.
//
// Threads:  any.
// Blocking: acquire() until there is memory or a stop is requested. Waiting threads are served in
//           order of arrival.
// Errors:   kCancelled.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <stop_token>

#include "shared/base/status.h"

namespace stoker::feed {

class ElementLimit {
 public:
  ElementLimit(uint64_t max_bytes, uint64_t min_elements)
      : max_bytes_(max_bytes), min_elements_(min_elements) {}

  // For one more element. `blocked` is true while the call waits; it becomes false with the release
  // that ends the wait, not when the waiting thread runs again.
  Status acquire(uint64_t bytes, const std::stop_token& stop, std::atomic<bool>& blocked);
  // One more element, without a wait and also above the limit.
  void add(uint64_t bytes);
  // Part of an element that remains.
  void release_bytes(uint64_t bytes);
  // An element with its remaining bytes.
  void release(uint64_t bytes);

  uint64_t held_bytes() const;
  uint64_t elements() const;

 private:
  struct Waiter {
    uint64_t bytes;
    std::atomic<bool>& blocked;
    bool granted = false;
  };
  // Require mutex_.
  bool fits(uint64_t bytes) const {
    return elements_ < min_elements_ || (held_ <= max_bytes_ && bytes <= max_bytes_ - held_);
  }
  void take(uint64_t bytes) {
    ++elements_;
    held_ += bytes;
  }
  void grant();

  // Constant after construction.
  const uint64_t max_bytes_;
  const uint64_t min_elements_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Waiter*> waiters_;
  uint64_t held_ = 0;
  uint64_t elements_ = 0;
};

}  // namespace stoker::feed
