// The self-test of a graph file: a tensor that this machine computed, compared with that of stoker-export.
//
// Threads: pure functions.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "shared/base/status.h"
#include "shared/graph/graph_file.h"

namespace stoker::model {

// Whether `tensor` has the same bits. kMismatch: it differs by more than rounding does; names `what`.
Result<bool> check_tested_tensor(const std::string& what, const at::Tensor& tensor,
                                 const graph::TestedTensor& expected);

}  // namespace stoker::model
