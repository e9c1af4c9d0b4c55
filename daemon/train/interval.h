// Interval: what the clock saw since the last reported step, and the row that is made of it.
//
// Threads: a value of the trainer's thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "shared/metrics/train_metrics.h"

namespace stoker::train {

struct Interval {
  std::chrono::nanoseconds started{0};
  std::chrono::nanoseconds waited{0};   // for batches
  std::chrono::nanoseconds stalled{0};  // for snapshots
  std::chrono::nanoseconds paused{0};
  uint64_t steps = 0;

  // Fills the part of `metrics` that a clock decides. `batch`: samples a step.
  void add_to(metrics::TrainMetrics& metrics, std::chrono::nanoseconds now, uint64_t batch) const;
};

}  // namespace stoker::train
