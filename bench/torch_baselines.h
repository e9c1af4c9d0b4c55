// torch_baselines: baselines of the training step benchmarks: the same training in eager PyTorch
// and with torch.compile.
//
// Errors: kMismatch: the baseline has another model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/benchmark.h"
#include "shared/base/status.h"

namespace stoker::bench {

struct TorchTraining {
  std::string bench;   // name of the benchmark, for messages
  std::string script;  // file in bench/
  std::string setup;   // JSON argument of the script
  int64_t parameters = 0;
};

// Empty without STOKER_PYTHON; unavailable baselines are omitted and reported. With options.quick,
// without torch.compile, which takes half a minute to compile.
Result<std::vector<Baseline>> torch_baselines(const TorchTraining& training,
                                              const Options& options);

}  // namespace stoker::bench
