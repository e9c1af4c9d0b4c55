// compute_class_weights(): resolves task.class_weights: balanced to numbers.
//
// The labels of data.train are counted once, when the run starts, each as often as the run trains on its sample:
// with `repeat`, the shares of a mixture and sample weights. Its checkpoints store the weights, so
// that a resumed run has the same loss even if the data has changed since. The labels are counted again
// only if the classes differ, which is logged.
//
// Threads:  the trainer thread.
// Blocking: while the label files are read.
// Errors:   kInvalidArgument: the labels cannot be counted; the message has an alternative. kCorrupt:
//           the checkpoint's weights are invalid. Errors of reading labels.
#pragma once

#include <optional>

#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/config/training_config.h"
#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"

namespace stoker::app {

// `task` with numbers in class_weights, which are logged; `task` itself if it is not balanced. `data` is
// data.train, `plan` how it is used, with the sample weights, `start` the checkpoint that the run resumes from.
Result<config::TaskConfig> compute_class_weights(
    const config::TaskConfig& task, const data::Dataset& data, const data::order::PlanOptions& plan,
    const std::optional<checkpoint::VerifiedCheckpoint>& start);

}  // namespace stoker::app
