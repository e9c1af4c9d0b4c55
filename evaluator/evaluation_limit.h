// EvaluationLimit: ends an evaluation when eval.timeout_seconds have passed or a stop was
// requested.
//
// Threads: one; the stop can be requested from any thread.
// Errors:  check(): kCancelled, kTimedOut; the message contains `where`.
#pragma once

#include <chrono>
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

}  // namespace stoker::evaluator
