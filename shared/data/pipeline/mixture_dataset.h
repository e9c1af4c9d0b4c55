// make_mixture: combines several datasets with the same tensors into one. Its samples are those of
// the first dataset, then those of the second, and so on. The sample plan determines their order
// and frequency in training. With a stream, it is a stream.
//
// Threads: as Dataset.
// Errors:  kInvalidArgument, naming both datasets: their tensors or classes differ.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/source.h"

namespace stoker::data::pipeline {

struct NamedSource {
  std::string name;
  Source source;
};

// `components`: at least one; only the last can be a stream.
Result<Source> make_mixture(const std::string& name, std::vector<NamedSource> components);

}  // namespace stoker::data::pipeline
