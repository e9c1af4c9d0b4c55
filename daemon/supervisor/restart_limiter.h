// RestartLimiter: when readers die too often for the run to go on: in vain, or more than so many a
// minute.
//
// Threads: one at a time.
// Errors:  record_crash(): kInternal: the run must end; says how many died, of what, and what helps.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "shared/base/status.h"

namespace stoker::supervisor {

class RestartLimiter {
 public:
  static constexpr uint64_t kMaxCrashesWithoutProgress = 20;  // without one new batch
  // A reader that ends with an error of its own will do so again.
  static constexpr uint64_t kMaxFailuresWithoutProgress = 3;

  struct Crash {
    std::chrono::nanoseconds now{0};
    uint64_t published = 0;      // batches so far, by all
    bool is_unprovoked = false;  // with an error, not by a signal
    bool made_progress = false;  // what killed it is in quarantine now
    std::string cause;
  };

  explicit RestartLimiter(uint64_t deaths_per_minute)
      : max_crashes_per_minute_(deaths_per_minute) {}

  Status record_crash(const Crash& crash);
  uint64_t crashes() const { return crashes_; }

 private:
  const uint64_t max_crashes_per_minute_;
  uint64_t crashes_ = 0;
  uint64_t crashes_without_progress_ = 0;
  uint64_t failures_without_progress_ = 0;  // of those
  uint64_t published_ = 0;                  // at the last death
  std::deque<std::chrono::nanoseconds> last_minute_;
};

}  // namespace stoker::supervisor
