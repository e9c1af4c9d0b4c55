// torch_baselines: the peers of a benchmark of training steps: the same training in eager PyTorch and
// under torch.compile.
//
// Errors: kMismatch: the peer's model is another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/benchmark.h"
#include "shared/base/status.h"

namespace stoker::bench {

struct TorchTraining {
  std::string bench;   // its name, for messages
  std::string script;  // of bench/
  std::string setup;   // JSON that the script is told
  int64_t parameters = 0;
  double units = 1;  // of a step, in the trial's unit
};

// Empty where STOKER_PYTHON names no Python; those that cannot be had are left out, which is said.
// options.quick: without torch.compile, which takes half a minute to compile.
Result<std::vector<Baseline>> torch_baselines(const TorchTraining& training,
                                              const Options& options);

}  // namespace stoker::bench
