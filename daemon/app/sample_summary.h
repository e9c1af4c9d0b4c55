// Sample views: samples as the model is given them, for people to look at: pictures side by side,
// texts, and labels.
//
// Threads: functions of their arguments.
// Errors:  those of encoding a picture.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"

namespace stoker::app {

struct SampleSummary {
  std::string table;  // Markdown: a line each
  std::string png;    // empty: the samples are no pictures
};

// `components`: of each tensor of `spec` the bytes of all samples, one after another. `class_names`
// may be empty.
Result<SampleSummary> summarize_samples(const std::vector<TensorSpec>& spec,
                                        const std::vector<std::vector<std::byte>>& components,
                                        size_t samples,
                                        const std::vector<std::string>& class_names);

}  // namespace stoker::app
