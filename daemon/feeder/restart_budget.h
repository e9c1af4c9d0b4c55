// RestartBudget: when readers die too often for the run to go on: in vain, or more than so many a
// minute.
//
// Threads: one at a time.
// Errors:  note_death(): kInternal: the run must end; says how many died, of what, and what helps.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "shared/base/status.h"

namespace stoker::feeder {

class RestartBudget {
 public:
  static constexpr uint64_t kDeathsInVain = 20;  // without one new batch
  // A reader that ends with an error of its own will do so again.
  static constexpr uint64_t kFailuresInVain = 3;

  struct Death {
    std::chrono::nanoseconds now{0};
    uint64_t published = 0;     // batches so far, by all
    bool by_itself = false;     // with an error, not by a signal
    bool gets_further = false;  // what killed it is in quarantine now
    std::string cause;
  };

  explicit RestartBudget(uint64_t deaths_per_minute) : deaths_per_minute_(deaths_per_minute) {}

  Status note_death(const Death& death);
  uint64_t deaths() const { return deaths_; }

 private:
  const uint64_t deaths_per_minute_;
  uint64_t deaths_ = 0;
  uint64_t in_vain_ = 0;
  uint64_t failures_in_vain_ = 0;  // of those
  uint64_t published_ = 0;         // at the last death
  std::deque<std::chrono::nanoseconds> last_minute_;
};

}  // namespace stoker::feeder
