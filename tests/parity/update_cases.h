// The parity cases of an mlp: optimizers, schedules, groups of parameters, and tasks over vectors;
// update_cases.py has the same.
#pragma once

#include <vector>

#include "tests/parity/parity_case.h"

namespace stoker::parity {

std::vector<ParityCase> update_cases();

}  // namespace stoker::parity
