// Interval: the times measured since the last reported step, and the metrics computed from them.
//
// Threads: a value; owned by the trainer thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "shared/metrics/metrics_record.h"

namespace stoker::train {

struct Interval {
  std::chrono::nanoseconds started{0};
  std::chrono::nanoseconds waited{0};   // waiting for batches
  std::chrono::nanoseconds stalled{0};  // taking snapshots
  std::chrono::nanoseconds paused{0};
  uint64_t steps = 0;

  // Sets the time-based fields of `metrics`. `batch`: samples per step.
  void add_to(metrics::TrainMetrics& metrics, std::chrono::nanoseconds now, uint64_t batch) const;
};

}  // namespace stoker::train
