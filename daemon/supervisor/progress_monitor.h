// ProgressMonitor: tells a producer that hangs from one that works slowly or has nothing to do.
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

namespace stoker::supervisor {

class ProgressMonitor {
 public:
  static constexpr int kConsecutiveOverdue = 5;

  struct Observation {
    std::chrono::nanoseconds now{0};
    std::chrono::nanoseconds cpu_time{0};  // of the process, ever
    ring::ProducerProgress progress;
  };

  explicit ProgressMonitor(std::chrono::nanoseconds limit = {})
      : limit_(limit) {}  // 0: nothing hangs

  // True when the producer hangs.
  bool has_timed_out(const Observation& observation);
  // For how long it had finished nothing when it was last looked at.
  std::chrono::nanoseconds idle_time() const { return last_.now - since_.now; }
  // It computed for a good part of that time: its decoder does not end. Otherwise it waits for
  // something.
  bool is_cpu_bound() const { return (last_.cpu_time - since_.cpu_time) * 10 > idle_time(); }

 private:
  std::chrono::nanoseconds limit_;
  bool is_started_ = false;
  int overdue_observations_ = 0;
  Observation since_;  // when it had last finished something, or looked
  Observation last_;
};

}  // namespace stoker::supervisor
