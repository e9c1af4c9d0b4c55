// WorkerActivity: what the reading threads were at, on average over the last second or so.
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

// WorkerAutotuner: how many reading threads keep the ring between two marks: `feed.num_workers: auto`.
//
// Where the ring was less than a quarter full on average for a second, the trainer will soon wait:
// one more thread. Where it was more than three quarters full for ten seconds, a thread is too many:
// one fewer. A thread that is called back soon after it was sent away was not too many: the next one
// is sent away later, and later still. While nothing is taken out of the ring, nothing is learnt.
//
// Threads: one at a time.
class WorkerAutotuner {
 public:
  static constexpr double kLowMark = 0.25;
  static constexpr double kHighMark = 0.75;
  static constexpr std::chrono::seconds kPeriod{1};
  static constexpr int kCalmPeriods = 10;  // above the high mark, before one is sent away …
  static constexpr int kMaxCalm = 640;     // … and at most, after others were called back

  struct Observation {
    std::chrono::nanoseconds now{0};
    uint64_t ready = 0;     // slots that are filled
    uint64_t slots = 0;     // of so many
    uint64_t consumed = 0;  // batches, ever
  };

  // Between `min` (at least 1) and `max` threads.
  WorkerAutotuner(uint32_t min, uint32_t max);

  uint32_t wanted() const { return wanted_; }
  // Several times a period. The number that is wanted from now on.
  uint32_t update(const Observation& observation);

 private:
  void adjust(double occupancy);
  void begin_period(const Observation& observation);

  const uint32_t min_;
  const uint32_t max_;
  uint32_t wanted_;

  // Of the period that goes on.
  bool is_started_ = false;
  Observation first_;
  double occupancy_ = 0;  // sum over the looks
  uint64_t observations_ = 0;

  int calm_ = 0;  // periods in a row above the high mark
  int patience_ = kCalmPeriods;
  int periods_since_reduction_ = kMaxCalm;  // periods
};

}  // namespace stoker::supervisor
