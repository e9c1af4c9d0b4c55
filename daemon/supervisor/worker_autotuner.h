// WorkerActivity: what the worker threads were doing, averaged over about one second.
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstdint>

#include "shared/ring/shm_ring.h"

namespace stoker::supervisor {

class WorkerActivity {
 public:
  static constexpr std::chrono::seconds kPeriod{1};

  // Number of threads. The remaining threads wait for each other or are idle.
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

// WorkerAutotuner: chooses the number of worker threads that keeps the fill level of the ring
// between two marks (`feed.num_workers: auto`).
//
// If the ring was less than a quarter full on average for one second, the trainer will soon wait,
// so a thread is added. If it was more than three quarters full for ten seconds, a thread is
// removed. If a thread has to be added again soon after one was removed, the time before the next
// removal doubles. While no batch is consumed, nothing changes.
//
// Threads: one at a time.
class WorkerAutotuner {
 public:
  static constexpr double kLowMark = 0.25;
  static constexpr double kHighMark = 0.75;
  static constexpr std::chrono::seconds kPeriod{1};
  static constexpr int kCalmPeriods = 10;  // periods above the high mark before a removal …
  static constexpr int kMaxCalm = 640;     // … and the maximum after premature removals

  struct Observation {
    std::chrono::nanoseconds now{0};
    uint64_t ready = 0;     // filled slots
    uint64_t slots = 0;     // total number of slots
    uint64_t consumed = 0;  // total number of consumed batches
  };

  // Between `min` (at least 1) and `max` threads.
  WorkerAutotuner(uint32_t min, uint32_t max);

  uint32_t wanted() const { return wanted_; }
  // Must be called several times per period. Returns the new number of wanted threads.
  uint32_t update(const Observation& observation);

 private:
  void adjust(double occupancy);
  void begin_period(const Observation& observation);

  const uint32_t min_;
  const uint32_t max_;
  uint32_t wanted_;

  // Of the current period.
  bool is_started_ = false;
  Observation first_;
  double occupancy_ = 0;  // sum over the observations
  uint64_t observations_ = 0;

  int calm_ = 0;  // consecutive periods above the high mark
  int patience_ = kCalmPeriods;
  int periods_since_reduction_ = kMaxCalm;
};

}  // namespace stoker::supervisor
