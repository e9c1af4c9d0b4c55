// The twin cases of models over sequences; cases.py has the same.
#pragma once

#include <vector>

#include "tests/twin/twin_case.h"

namespace stoker::twin {

std::vector<TwinCase> trained_sequence_cases();
std::vector<TwinCase> initial_sequence_cases();

}  // namespace stoker::twin
