// The options of a queue: which ones are possible, and how its messages name it.
//
// Threads: functions of their arguments.
// Errors:  kInvalidArgument: names, shapes, capacity or min_after_dequeue contradict each other.
#pragma once

#include <string>

#include "shared/base/status.h"
#include "shared/queue/queue.h"

namespace stoker::queue {

Status validate_options(const QueueOptions& options);
std::string label_of(const QueueOptions& options);  // "FIFOQueue 'records'"
Status invalid(std::string message);                // kInvalidArgument

}  // namespace stoker::queue
