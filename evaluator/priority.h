// Priority: how the evaluator shares the processor with a trainer on the same machine.
//
// Threads: give_way() is of the thread that calls it and of those that it starts from then on, so
//          of the one that evaluates, before LibTorch makes its own.
// Errors:  none; where the kernel refuses, the priority stays what it was.
#pragma once

#include "shared/config/config.h"

namespace stoker::evaluator {

enum class Priority {
  kIdle,    // what nobody else wants (SCHED_IDLE); nothing at all where others want everything
  kLow,     // a tenth of what a thread of the trainer gets where the two compete (nice 10)
  kNormal,  // like any other program
};

// What eval.priority says. auto: kIdle where the trainer leaves cores free, by its settings, so that
// the evaluation gets on; else kLow, with which it also gets on beside a trainer that has them all.
Priority priority_of(const config::Config& config, int cores);

void give_way(Priority priority);

}  // namespace stoker::evaluator
