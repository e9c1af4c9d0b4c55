// Sample summary: renders the samples of a batch as the model receives them: a table of texts,
// values and labels, and a PNG with the images in a grid.
//
// Threads: a pure function.
// Errors:  those of encoding a PNG.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"

namespace stoker::app {

struct SampleSummary {
  std::string table;  // Markdown, one row per sample
  std::string png;    // empty: the samples are not images
};

// `components`: for each tensor of `spec`, the concatenated bytes of all samples. `class_names` can
// be empty.
Result<SampleSummary> summarize_samples(const std::vector<TensorSpec>& spec,
                                        const std::vector<std::vector<std::byte>>& components,
                                        size_t samples,
                                        const std::vector<std::string>& class_names);

}  // namespace stoker::app
