// WorkerActivity: what the reading threads were at, on average over the last second or so.
//
// Threads: one at a time.
#pragma once

#include <chrono>

#include "shared/ring/shm_ring.h"

namespace stoker::supervisor {

class WorkerActivity {
 public:
  static constexpr std::chrono::seconds kPeriod{1};

  // Threads. What is left of all of them wait for each other, or rest.
  struct Busy {
    double reading = 0;
    double decoding = 0;
    double transforming = 0;
    double waiting = 0;  // for a free slot
  };

  void update(std::chrono::nanoseconds now, const ring::RingCounters& counters);
  const Busy& busy() const { return busy_; }

 private:
  bool is_started_ = false;
  std::chrono::nanoseconds since_{0};
  ring::RingCounters before_;
  Busy busy_;
};

}  // namespace stoker::supervisor
