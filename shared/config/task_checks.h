// check_task: what is wrong between the settings of the task, and between these and model and data.
//
// Threads: any.
#pragma once

#include "shared/config/config.h"
#include "shared/config/given_keys.h"
#include "shared/config/mistakes.h"

namespace stoker::config {

// Says nothing about keys that have a mistake already.
void check_task(const Config& config, const GivenKeys& given, Mistakes& mistakes);

}  // namespace stoker::config
