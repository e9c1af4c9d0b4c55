#include "evaluator/priority.h"

#include <sched.h>
#include <sys/resource.h>

namespace stoker::evaluator {

void give_way(std::string_view priority) {
  if (priority == "normal") return;
  // Also where it is idle: nice counts among those who are.
  ::setpriority(PRIO_PROCESS, 0, 10);
  const sched_param none{};
  ::sched_setscheduler(0, priority == "idle" ? SCHED_IDLE : SCHED_BATCH, &none);
}

}  // namespace stoker::evaluator
