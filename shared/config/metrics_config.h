// MetricsConfig: the settings under metrics: what a run writes down about itself.
//
// Threads: values.
#pragma once

#include <cstdint>

namespace stoker::config {

struct MetricsConfig {
  uint64_t every_steps = 10;
  bool tensorboard = true;
  uint64_t histogram_steps = 0;  // of parameters and gradients, each so many steps; 0 = none
  int64_t samples = 8;           // of the first batch, shown in TensorBoard

  bool operator==(const MetricsConfig&) const = default;
};

}  // namespace stoker::config
