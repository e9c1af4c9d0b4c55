// EvaluationWatchdog: notices an evaluation that has not even come to its time limit: a read that waits for
// a dead mount, arithmetic that does not end. Only the end of the process helps then; the try is
// already written down (attempt_counts.h), so that the next start knows it.
//
// Threads: begin() and end() from the evaluating thread, is_overdue() from any.
#pragma once

#include <atomic>
#include <chrono>

#include "shared/base/clock.h"

namespace stoker::evaluator {

class EvaluationWatchdog {
 public:
  // Between two looks of an evaluation at its limit lies at most a batch.
  static constexpr std::chrono::minutes kBatch{5};

  explicit EvaluationWatchdog(Clock& clock) : clock_(clock) {}

  void begin(std::chrono::nanoseconds limit) {
    overdue_at_ = (clock_.monotonic() + limit + kBatch).count();
  }
  void end() { overdue_at_ = 0; }
  bool is_overdue() const {
    const int64_t at = overdue_at_;
    return at != 0 && clock_.monotonic().count() > at;
  }

 private:
  Clock& clock_;  // outlives this object
  // Written by the evaluating thread. A single number that nothing else is ordered by. 0: none
  // runs.
  std::atomic<int64_t> overdue_at_{0};
};

}  // namespace stoker::evaluator
