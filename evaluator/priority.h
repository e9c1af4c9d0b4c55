// lower_priority: lowers the CPU priority of the evaluator in favor of a trainer on the same
// machine.
//
// Threads: applies to the calling thread and to threads that it starts later. Call it from the
//          evaluating thread before LibTorch starts its own.
// Errors:  none; if the kernel rejects the change, the priority stays as it was.
#pragma once

#include "shared/config/run_config.h"

namespace stoker::evaluator {

// Values of eval.priority. low: nice 10 and SCHED_BATCH, about a tenth of the CPU time of a
// competing trainer thread, so that evaluations still make progress. idle: SCHED_IDLE, only unused
// CPU time. normal: no change. If the process is a session leader (setsid), the priority of the
// whole session is lowered as well.
void lower_priority(config::EvaluationPriority priority);

}  // namespace stoker::evaluator
