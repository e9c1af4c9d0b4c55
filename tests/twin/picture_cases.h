// The twin cases of models over pictures; picture_cases.py has the same.
#pragma once

#include <vector>

#include "tests/twin/twin_case.h"

namespace stoker::twin {

std::vector<TwinCase> picture_cases();

}  // namespace stoker::twin
