// checkpoint_baselines: other libraries that save the same state, if STOKER_PYTHON is a Python that
// has them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/benchmark.h"
#include "bench/scratch_folder.h"

namespace stoker::bench {

enum class Until { kDurable, kBlocked };

// Baselines for those of `libraries` that start; missing ones are reported on standard error.
// `of_seconds` converts the duration of saving `bytes` to the reported value.
std::vector<Baseline> checkpoint_baselines(const std::vector<std::string>& libraries, Until until,
                                           size_t bytes,
                                           const std::shared_ptr<ScratchFolder>& folder,
                                           const std::function<double(double)>& to_value);

}  // namespace stoker::bench
