// check_lengths: what data sets of sequences of various lengths need, and what goes with nothing else.
//
// Threads: any.
#pragma once

#include "shared/config/config.h"
#include "shared/config/given_keys.h"
#include "shared/config/mistakes.h"

namespace stoker::config {

// Says nothing about keys that have a mistake already.
void check_lengths(const Config& config, const GivenKeys& given, Mistakes& mistakes);

}  // namespace stoker::config
