// ElementLimit: limits the memory of the elements that a stream holds between its readers and the
// ring.
//
// As many elements as a batch needs always pass, so that a limit below their size delays the readers
// but never stops the stream.
//
// The memory that a reader uses to read its input, its window, counts for the other readers only: its
// size depends on where reading began, and what a single reader does must not, so that a resumed stream
// has the same batches. What is held thus exceeds the limit by at most the window of one reader, until
// the others wait.
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
#include <functional>
#include <mutex>
#include <stop_token>
#include <utility>

#include "shared/base/status.h"

namespace stoker::feed {

class ElementLimit {
 public:
  // One reading thread. Must outlive its calls.
  class Reader {
   public:
    // `on_blocked` is called by acquire() each time when it begins to wait, and may use the limit.
    explicit Reader(std::function<void()> on_blocked = nullptr)
        : on_blocked_(std::move(on_blocked)) {}
    // True while acquire() waits. Becomes false with the release that ends the wait, not when the
    // waiting thread runs again.
    bool is_blocked() const { return blocked_; }

   private:
    friend class ElementLimit;
    const std::function<void()> on_blocked_;
    std::atomic<bool> blocked_{false};  // changed with the limit locked
    uint64_t window_ = 0;               // guarded by the limit
  };

  ElementLimit(uint64_t max_bytes, uint64_t min_elements)
      : max_bytes_(max_bytes), min_elements_(min_elements) {}

  // For one more element.
  Status acquire(uint64_t bytes, Reader& reader, const std::stop_token& stop);
  // The size of the reader's window, without a wait.
  void set_window(Reader& reader, uint64_t bytes);
  // One more element, without a wait and also above the limit.
  void add(uint64_t bytes);
  // Part of an element that remains.
  void release_bytes(uint64_t bytes);
  // An element with its remaining bytes.
  void release(uint64_t bytes);

  uint64_t held_bytes() const;  // without windows
  uint64_t elements() const;

 private:
  struct Waiter {
    uint64_t bytes;
    Reader& reader;
    bool granted = false;
  };
  // Require mutex_.
  bool fits(uint64_t bytes, const Reader& reader) const {
    const uint64_t held = held_ + windows_ - reader.window_;
    return elements_ < min_elements_ || (held <= max_bytes_ && bytes <= max_bytes_ - held);
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
  uint64_t windows_ = 0;  // of all readers
};

}  // namespace stoker::feed
