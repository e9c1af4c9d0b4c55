// validate_samples: reads a few samples of a set that was indexed just now. Settings that fit none of its
// records should be told at the start, not as a thousand bad samples.
//
// Threads:  functions of their arguments.
// Blocking: reads a handful of samples.
// Errors:   kCorrupt: none of those looked at can be read; names the set and gives the first
//           reason.
#pragma once

#include "shared/base/status.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/format.h"

namespace stoker::dataset {

Status validate_samples(const DatasetRequest& request, const Dataset& dataset);

}  // namespace stoker::dataset
