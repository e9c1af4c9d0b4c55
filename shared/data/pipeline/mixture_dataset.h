// make_mixture: several data sets with the same tensors as one. Its samples are those of the first,
// then those of the second, and so on; in which order and how often they come is the sample plan's
// affair.
//
// Threads: as Dataset.
// Errors:  kInvalidArgument, naming both sets: their tensors or classes differ.
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
