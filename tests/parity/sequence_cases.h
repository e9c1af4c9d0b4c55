// Parity cases of sequence models; sequence_cases.py has the same.
#pragma once

#include <vector>

#include "tests/parity/parity_case.h"

namespace stoker::parity {

std::vector<ParityCase> sequence_cases();

}  // namespace stoker::parity
