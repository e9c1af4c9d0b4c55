// The twin cases of models over sequences; sequence_cases.py has the same.
#pragma once

#include <vector>

#include "tests/twin/twin_case.h"

namespace stoker::twin {

std::vector<TwinCase> sequence_cases();

}  // namespace stoker::twin
