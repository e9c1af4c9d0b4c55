// WaitLogger: says what the evaluator waits for: when that changes, and again after a long time, so
// that nobody has to guess why nothing happens.
//
// Threads: one.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "shared/base/clock.h"

namespace stoker::evaluator {

class WaitLogger {
 public:
  static constexpr std::chrono::minutes kReminder{10};

  explicit WaitLogger(Clock& clock) : clock_(clock) {}

  // Logs a line if one is due.
  void waiting(const std::string& reason);
  // As waiting(), without the line: how long it has been waited for `reason`, if a line is due.
  std::optional<std::chrono::nanoseconds> find_reminder(const std::string& reason);
  // Something was done: the wait begins anew, which is worth no line of its own.
  void over() { since_ = logged_at_ = clock_.monotonic(); }

 private:
  Clock& clock_;  // outlives this object
  std::string reason_;
  std::chrono::nanoseconds since_{0};
  std::chrono::nanoseconds logged_at_{0};
};

}  // namespace stoker::evaluator
