// Parity cases of an mlp: optimizers, schedulers, parameter groups, and tasks over vectors;
// update_cases.py has the same.
#pragma once

#include <vector>

#include "tests/parity/parity_case.h"

namespace stoker::parity {

std::vector<ParityCase> update_cases();

}  // namespace stoker::parity
