#include "evaluator/priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace stoker::evaluator {

namespace {

constexpr int kLowPriority = 10;

// With sched_autogroup, the kernel divides CPU time among sessions before it considers the nice
// values of their threads, so a process in a separate session would get half of the machine. A
// session led by another program is left unchanged.
void lower_session_priority() {
  if (::getsid(0) == ::getpid()) std::ofstream("/proc/self/autogroup") << kLowPriority;
}

}  // namespace

void lower_priority(config::EvaluationPriority priority) {
  if (priority == config::EvaluationPriority::kNormal) return;
  lower_session_priority();
  // SCHED_IDLE threads compete by nice value too.
  ::setpriority(PRIO_PROCESS, 0, kLowPriority);
  const sched_param none{};
  ::sched_setscheduler(0, priority == config::EvaluationPriority::kIdle ? SCHED_IDLE : SCHED_BATCH,
                       &none);
}

}  // namespace stoker::evaluator
