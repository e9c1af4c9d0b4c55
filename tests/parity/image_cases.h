// Parity cases of image models; image_cases.py has the same.
#pragma once

#include <vector>

#include "tests/parity/parity_case.h"

namespace stoker::parity {

std::vector<ParityCase> image_cases();

}  // namespace stoker::parity
