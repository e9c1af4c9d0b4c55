// check_growth: what a data set that grows cannot have.
//
// Threads: any.
#pragma once

#include "shared/config/config.h"
#include "shared/config/given_keys.h"
#include "shared/config/mistakes.h"

namespace stoker::config {

// Says nothing about keys that have a mistake already.
void check_growth(const Config& config, const GivenKeys& given, Mistakes& mistakes);

}  // namespace stoker::config
