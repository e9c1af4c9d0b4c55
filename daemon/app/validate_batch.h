// validate_batch(): whether a batch holds only labels and tokens that model and task can take.
//
// Readers have looked at each of their samples (label_range_check.h). What an outside producer wrote nobody
// has read yet, and a model looks its numbers up in tables.
//
// Threads: the trainer's calls what it gives back.
// Owner:   the ring must outlive that.
// Errors:  kCorrupt, naming ticket, row and value.
#pragma once

#include <functional>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/ring/shm_ring.h"

namespace stoker::app {

// Empty where only readers fill batches, or where any number will do.
std::function<Status(const ring::ReadyBatch&)> validate_batch(const config::Config& config,
                                                              const data::Dataset& data,
                                                              const ring::ShmRing& ring);

}  // namespace stoker::app
