#include "evaluator/priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace stoker::evaluator {

namespace {

constexpr int kLow = 10;

// The kernel shares the processors among sessions before it looks at the threads in each
// (sched_autogroup): as nice as its threads may be, one that shares its session with nobody has half
// of the machine. Another program's session is left as it is.
void lower_session_priority() {
  if (::getsid(0) == ::getpid()) std::ofstream("/proc/self/autogroup") << kLow;
}

}  // namespace

void lower_priority(config::EvaluationPriority priority) {
  if (priority == config::EvaluationPriority::kNormal) return;
  lower_session_priority();
  // Also where it is idle: nice counts among those who are.
  ::setpriority(PRIO_PROCESS, 0, kLow);
  const sched_param none{};
  ::sched_setscheduler(0, priority == config::EvaluationPriority::kIdle ? SCHED_IDLE : SCHED_BATCH,
                       &none);
}

}  // namespace stoker::evaluator
