// MemoryBudget: a limit on bytes that several threads share.
//
// Threads:  every method may be called from any thread.
// Blocking: wait_for() until there is room, or a stop is requested.
// Errors:   none: what has no room is told by false, and nothing is taken.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>

namespace stoker::dataset {

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

}  // namespace stoker::dataset
