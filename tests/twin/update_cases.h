// The twin cases of optimizers without a fused kernel, and of tasks that they are trained on; cases.py
// has the same.
#pragma once

#include <vector>

#include "tests/twin/twin_case.h"

namespace stoker::twin {

std::vector<TwinCase> update_cases();

}  // namespace stoker::twin
