// The data sets that training reads.
//
// Threads: any.
#pragma once

#include <string>
#include <vector>

#include "shared/config/config.h"

namespace stoker::config {

// "train", and where that is a mixture, the sets it is of.
std::vector<std::string> training_sets(const Config& config);

// Those of them that have samples: "train", or the sets of the mixture in their order.
std::vector<std::string> sample_sets(const Config& config);

}  // namespace stoker::config
