// Priority: how the evaluator shares the processors with a trainer on the same machine.
//
// Threads: of the thread that calls it and of those that it starts from then on, so of the one that
//          evaluates, before LibTorch makes its own.
// Errors:  none; where the kernel refuses, the priority stays what it was.
#pragma once

#include "shared/config/run_config.h"

namespace stoker::evaluator {

// eval.priority. low: nice 10 and SCHED_BATCH, a tenth of what a thread of the trainer gets where the
// two compete, so that an evaluation gets on whatever else goes on. idle: SCHED_IDLE, what nobody
// else wants. normal: as it was started. Where the process leads a session, as under setsid, the
// whole session gives way.
void lower_priority(config::EvaluationPriority priority);

}  // namespace stoker::evaluator
