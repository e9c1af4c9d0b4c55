// EvaluationWatchdog: detects an evaluation that hangs and no longer checks its time limit, for
// example in a read from a dead mount. Only exiting the process helps then. The attempt is already
// recorded (attempt_counts.h), so the next start counts it.
//
// Threads: begin(), extend() and end() from the evaluating thread, is_overdue() from any.
#pragma once

#include <atomic>
#include <chrono>

#include "shared/base/clock.h"

namespace stoker::evaluator {

class EvaluationWatchdog {
 public:
  // Longest time between two checks of the limit: one batch.
  static constexpr std::chrono::minutes kMaxBatchDuration{5};

  explicit EvaluationWatchdog(Clock& clock) : clock_(clock) {}

  void begin(std::chrono::nanoseconds limit) {
    overdue_at_ = (clock_.monotonic() + limit + kMaxBatchDuration).count();
  }
  // As EvaluationLimit::extend().
  void extend(std::chrono::nanoseconds time) {
    if (overdue_at_ != 0) overdue_at_ += time.count();
  }
  void end() { overdue_at_ = 0; }
  bool is_overdue() const {
    const int64_t at = overdue_at_;
    return at != 0 && clock_.monotonic().count() > at;
  }

 private:
  Clock& clock_;  // outlives this object
  // Monotonic nanoseconds; 0: no evaluation is running. Written by the evaluating thread; no other
  // data is ordered by it.
  std::atomic<int64_t> overdue_at_{0};
};

}  // namespace stoker::evaluator
