// validate_batch(): whether all labels and tokens of a batch are in the range of model and task.
//
// Workers check each of their samples (label_range_check.h). Batches of external producers are unchecked,
// and a model uses their numbers as table indexes.
//
// Threads:   the trainer thread calls the returned function.
// Ownership: the ring must outlive the returned function.
// Errors:    kCorrupt, with ticket, row and value.
#pragma once

#include <functional>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/ring/shm_ring.h"

namespace stoker::app {

// Empty if only workers fill batches, or if every number is valid.
std::function<Status(const ring::ReadyBatch&)> validate_batch(const config::Config& config,
                                                              const data::Dataset& data,
                                                              const ring::ShmRing& ring);

}  // namespace stoker::app
