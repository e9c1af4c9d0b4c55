// plan_settings: the sample plan of a run. One function, so that stokerd, stoker-feed and stokerctl
// plan the same.
//
// Threads: any.
// Errors:  none; load_config() has checked the configuration.
#pragma once

#include <cstdint>

#include "shared/config/config.h"
#include "shared/dataset/sample_plan.h"

namespace stoker::feed {

// `dataset_size` is that of data.train, at least 1.
dataset::PlanSettings plan_settings(const config::Config& config, uint64_t dataset_size);

}  // namespace stoker::feed
