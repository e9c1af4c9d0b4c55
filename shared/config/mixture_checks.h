// check_mixtures: what is wrong between a mixture and its sets, and between how samples are drawn
// and the rest.
//
// Threads: any.
#pragma once

#include "shared/config/config.h"
#include "shared/config/given_keys.h"
#include "shared/config/mistakes.h"

namespace stoker::config {

// Says nothing about keys that have a mistake already.
void check_mixtures(const Config& config, const GivenKeys& given, Mistakes& mistakes);

}  // namespace stoker::config
