// CheckpointConfig: the settings under checkpoint: when to save, and what is kept.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stoker::config {

struct CheckpointConfig {
  uint64_t every_steps = 200;  // 0 = not by steps
  double every_seconds = 600;  // 0 = not by time
  double on_improvement = 0;   // 0 = off; else when the training loss fell by this part of itself
  int keep_last = 3;           // at least 2
  uint64_t keep_every_steps = 0;          // 0 = off; else every checkpoint at a multiple is kept
  double keep_every_hours = 0;            // 0 = off; else one in so many hours is kept
  int keep_best = 1;                      // by each of keep_best_by
  std::vector<std::string> keep_best_by;  // METRIC or SET/METRIC; empty: eval.metric
  double grace_seconds = 0;               // nothing younger is removed
  std::string on_failure = "continue";    // continue | stop

  bool operator==(const CheckpointConfig&) const = default;
};

}  // namespace stoker::config
