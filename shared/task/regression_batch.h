// RegressionBatch: batch layout of tasks whose targets are numbers, `target` F32 [width].
//
// Threads: values and functions of their arguments.
#pragma once

#include <string>

#include "shared/task/model_input.h"

namespace stoker::task {

struct RegressionBatch {
  ModelInput input;
  size_t target = 0;  // index in a batch
  int64_t width = 0;  // of the target
};

// `task` and `needs` are used in the message. kMismatch: the data has no such target.
Result<RegressionBatch> find_regression_batch(const config::Normalize* maybe_normalize,
                                              const std::vector<TensorSpec>& sample,
                                              uint64_t classes, const std::string& task,
                                              const std::string& needs);

}  // namespace stoker::task
