// WaitLogger: logs what the evaluator is waiting for, on each change and then every ten minutes.
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

  // Logs `reason` if it has changed or a reminder is due.
  void waiting(const std::string& reason);
  // As waiting(), but without logging: the time spent waiting for `reason` (0 if it is new), if a
  // line is due.
  std::optional<std::chrono::nanoseconds> find_reminder(const std::string& reason);
  // Restarts the wait time after work was done; logs nothing.
  void over() { since_ = logged_at_ = clock_.monotonic(); }

 private:
  Clock& clock_;  // outlives this object
  std::string reason_;
  std::chrono::nanoseconds since_{0};
  std::chrono::nanoseconds logged_at_{0};
};

}  // namespace stoker::evaluator
