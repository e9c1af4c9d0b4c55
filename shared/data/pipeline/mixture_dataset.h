// make_mixture: combines several datasets with the same tensors into one. Its samples are those of
// the first dataset, then those of the second, and so on. The sample plan determines their order
// and frequency in training.
//
// Threads: as Dataset.
// Errors:  kInvalidArgument, naming both datasets: their tensors or classes differ.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"

namespace stoker::data::pipeline {

struct NamedDataset {
  std::string name;
  std::unique_ptr<Dataset> data;
};

// `datasets`: at least one.
Result<std::unique_ptr<Dataset>> make_mixture(const std::string& name,
                                              std::vector<NamedDataset> datasets);

}  // namespace stoker::data::pipeline
