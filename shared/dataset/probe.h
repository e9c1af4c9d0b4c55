// probe: reads a few samples of a set that was indexed just now. Settings that fit none of its
// records should be told at the start, not as a thousand bad samples.
//
// Threads:  functions of their arguments.
// Blocking: reads a handful of samples.
// Errors:   kCorrupt: none of those looked at can be read; names the set and gives the first
//           reason.
#pragma once

#include "shared/base/status.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/kind.h"

namespace stoker::dataset {

Status probe(const SetRequest& set, const Dataset& dataset);

}  // namespace stoker::dataset
