// compute_class_weights(): what task.class_weights: balanced comes to.
//
// The labels of data.train are counted once, when the run begins. From then on its checkpoints say what
// the weights are, so that a resumed run goes on with the same loss, whatever came to the data or was
// exchanged meanwhile; only where the classes are others is it counted anew, which is logged.
//
// Threads:  the trainer's thread.
// Blocking: the counting, as the labels' files do.
// Errors:   kInvalidArgument: the labels cannot be counted; says what to do instead. kCorrupt: the
//           checkpoint's weights are none. Those of reading labels.
#pragma once

#include <optional>

#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/config/training_config.h"
#include "shared/data/dataset.h"

namespace stoker::app {

// `task` with the numbers in class_weights, which are logged; `task` itself where it is not balanced.
// `data` is data.train, `start` the checkpoint that the run goes on from.
Result<config::TaskConfig> compute_class_weights(
    const config::TaskConfig& task, const data::Dataset& data,
    const std::optional<checkpoint::VerifiedCheckpoint>& start);

}  // namespace stoker::app
