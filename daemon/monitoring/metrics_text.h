// The status of training in Prometheus' text format: a fixed set of metrics with the prefix stoker_,
// in base units; docs/operations.md lists them. Values that are unknown (NaN) are omitted;
// before training starts, all that a checkpoint restores, so that no counter decreases.
//
// Threads: functions of their arguments.
#pragma once

#include <string>

#include "shared/control/trainer_status.h"

namespace stoker::monitoring {

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

std::string to_metrics_text(const control::TrainerStatus& status, const std::string& version);

}  // namespace stoker::monitoring
