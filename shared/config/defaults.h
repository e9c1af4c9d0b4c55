// defaults: those that depend on other settings.
//
// Threads: any; no state.
#pragma once

#include "shared/config/config.h"
#include "shared/config/given_keys.h"

namespace stoker::config {

// Fills in what was not given, so that the Config says everything and depends on nothing.
void apply_dependent_defaults(const GivenKeys& given, Config& config);

}  // namespace stoker::config
