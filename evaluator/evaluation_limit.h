// EvaluationLimit: ends an evaluation when eval.timeout_seconds have passed or a stop was
// requested. EvaluationWatchdog: detects one that no longer checks its limit.
//
// Threads: EvaluationLimit: one; the stop can be requested from any thread. EvaluationWatchdog: begin(),
//          extend() and end() from the evaluating thread, is_overdue() from any.
// Errors:  check(): kCancelled, kTimedOut; the message contains `where`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>
#include <utility>

#include "shared/base/clock.h"
#include "shared/base/status.h"

namespace stoker::evaluator {

class EvaluationLimit {
 public:
  // The time starts at construction. `clock` must outlive this object.
  EvaluationLimit(Clock& clock, double seconds, std::stop_token stop)
      : clock_(clock),
        deadline_(clock.monotonic() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::duration<double>(seconds))),
        stop_(std::move(stop)) {}

  Status check(const std::string& where) const {
    if (stop_.stop_requested()) return Status(StatusCode::kCancelled, "stopped at " + where);
    if (clock_.monotonic() <= deadline_) return {};
    return Status(StatusCode::kTimedOut, "exceeded eval.timeout_seconds at " + where);
  }
  // For time that is not counted.
  void extend(std::chrono::nanoseconds time) { deadline_ += time; }
  std::stop_token stop() const { return stop_; }

 private:
  Clock& clock_;
  std::chrono::nanoseconds deadline_;
  const std::stop_token stop_;
};

// An evaluation hangs for example in a read from a dead mount. Only exiting the process helps then. The attempt
// is already recorded (attempt_counts.h), so the next start counts it.
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
