// log_padding_ratio(): one line that says how much of what a run computes is padding, and how much it were
// without feed.bucket_boundaries. Nothing where samples have one length.
//
// Threads: any.
#pragma once

#include "shared/dataset/dataset.h"
#include "shared/dataset/sample_plan.h"

namespace stoker::feed {

void log_padding_ratio(const dataset::Dataset& data, const dataset::PlanOptions& options);

}  // namespace stoker::feed
