// validate_batch(): whether all labels and tokens of a batch are in the range of model and task.
//
// Workers check each of their samples (label_range_check.h), but batches of external producers are
// unchecked, and every process that maps the ring can overwrite a batch. A model uses these numbers
// as table indexes.
//
// Threads:   the trainer thread calls the returned function.
// Errors:    kCorrupt, with ticket, row and value.
#pragma once

#include <functional>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/feed/batch_receiver.h"

namespace stoker::app {

// Empty if every number is valid.
std::function<Status(const feed::ReceivedBatch&)> validate_batch(const config::Config& config,
                                                                 const data::DatasetInfo& data);

}  // namespace stoker::app
