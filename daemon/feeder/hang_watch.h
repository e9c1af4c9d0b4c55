// HangWatch: tells a producer that hangs from one that works slowly or has nothing to do.
//
// One that holds a ticket finishes a sample now and then; one that holds none looks for a ticket
// several times a second. One that does neither for `limit` hangs: it is stopped, its read waits for
// a dead mount, its decoder does not end. It must be found so at several looks in a row, so that a
// machine that was asleep, with all its processes, is given a moment.
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "shared/ring/shm_ring.h"

namespace stoker::feeder {

class HangWatch {
 public:
  static constexpr int kLooksInARow = 5;

  struct Look {
    std::chrono::nanoseconds now{0};
    std::chrono::nanoseconds cpu_time{0};  // of the process, ever
    ring::ProducerProgress progress;
  };

  explicit HangWatch(std::chrono::nanoseconds limit = {}) : limit_(limit) {}  // 0: nothing hangs

  // True when the producer hangs.
  bool hangs(const Look& look);
  // For how long it had finished nothing when it was last looked at.
  std::chrono::nanoseconds still_for() const { return last_.now - since_.now; }
  // It computed for a good part of that time: its decoder does not end. Otherwise it waits for
  // something.
  bool computes() const { return (last_.cpu_time - since_.cpu_time) * 10 > still_for(); }

 private:
  std::chrono::nanoseconds limit_;
  bool begun_ = false;
  int overdue_looks_ = 0;
  Look since_;  // when it had last finished something, or looked
  Look last_;
};

}  // namespace stoker::feeder
