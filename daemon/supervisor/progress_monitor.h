// ProgressMonitor: distinguishes a producer that hangs from one that is slow or idle.
//
// A producer with a ticket regularly finishes a sample; one without a ticket polls for one several
// times a second. A producer that does neither for `limit` hangs: it is stopped, its read waits for
// a dead mount, or its decoder does not terminate. Several consecutive observations must confirm
// this, so that all processes can recover after the machine was suspended.
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
    std::chrono::nanoseconds cpu_time{0};  // total of the process
    ring::ProducerProgress progress;
  };

  explicit ProgressMonitor(std::chrono::nanoseconds limit = {}) : limit_(limit) {}  // 0: no timeout

  // True if the producer hangs.
  bool has_timed_out(const Observation& observation);
  // Time without progress at the last observation.
  std::chrono::nanoseconds idle_time() const { return last_.now - since_.now; }
  // True if it used the CPU for more than a tenth of that time: its decoder does not terminate.
  // Otherwise it is waiting.
  bool is_cpu_bound() const { return (last_.cpu_time - since_.cpu_time) * 10 > idle_time(); }

 private:
  std::chrono::nanoseconds limit_;
  bool is_started_ = false;
  int overdue_observations_ = 0;
  Observation since_;  // when it last made progress
  Observation last_;
};

}  // namespace stoker::supervisor
