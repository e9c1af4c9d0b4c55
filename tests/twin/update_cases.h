// The twin cases of an mlp: optimizers, schedules, groups of parameters, and tasks over vectors;
// update_cases.py has the same.
#pragma once

#include <vector>

#include "tests/twin/twin_case.h"

namespace stoker::twin {

std::vector<TwinCase> update_cases();

}  // namespace stoker::twin
