// checkpoint_baselines: what users of PyTorch save the same state with, where STOKER_PYTHON has it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/benchmark.h"
#include "bench/scratch_folder.h"

namespace stoker::bench {

enum class Until { kDurable, kBlocked };

// Of the libraries named, those that answer; what is missing is said on standard error. Their values
// are `of_seconds` of the time that a save of `bytes` took.
std::vector<Baseline> checkpoint_baselines(const std::vector<std::string>& libraries, Until until,
                                           size_t bytes,
                                           const std::shared_ptr<ScratchFolder>& folder,
                                           const std::function<double(double)>& of_seconds);

}  // namespace stoker::bench
