// cross_checks: what only several settings together show to be wrong, and rules of single ones that are more
// than a range.
//
// Threads: any; no state.
#pragma once

#include "shared/config/config.h"
#include "shared/config/given_keys.h"

namespace stoker::config {

// Says nothing about keys that have a mistake already.
void check_together(const Config& config, const GivenKeys& given, Mistakes& mistakes);

}  // namespace stoker::config
