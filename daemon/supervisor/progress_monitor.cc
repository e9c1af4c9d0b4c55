#include "daemon/supervisor/progress_monitor.h"

#include <utility>

namespace stoker::supervisor {

bool ProgressMonitor::has_timed_out(const Observation& observation) {
  last_ = observation;
  const bool idle = observation.progress.claims == 0;
  const bool moved = observation.progress.samples != since_.progress.samples ||
                     (idle && observation.progress.polls != since_.progress.polls);
  // When the producer claims its first ticket or finishes its last, the other heartbeat applies, so
  // the measurement restarts.
  const bool changed = idle != (since_.progress.claims == 0);
  if (!std::exchange(is_started_, true) || moved || changed) {
    since_ = observation;
    overdue_observations_ = 0;
    return false;
  }
  if (limit_.count() == 0 || idle_time() < limit_) return false;
  return ++overdue_observations_ >= kConsecutiveOverdue;
}

}  // namespace stoker::supervisor
