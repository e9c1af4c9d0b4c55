#include "evaluator/priority.h"

#include <sched.h>
#include <sys/resource.h>

namespace stoker::evaluator {
namespace {

bool leaves_cores(const config::Config& config, int cores) {
  if (config.train.device.starts_with("cuda")) return true;
  const auto of = [&](int threads) { return threads > 0 ? threads : cores; };
  return of(config.train.threads) + of(config.eval.threads) <= cores;
}

}  // namespace

Priority priority_of(const config::Config& config, int cores) {
  const std::string& wanted = config.eval.priority;
  if (wanted == "normal") return Priority::kNormal;
  if (wanted == "low") return Priority::kLow;
  if (wanted == "idle") return Priority::kIdle;
  return leaves_cores(config, cores) ? Priority::kIdle : Priority::kLow;
}

void give_way(Priority priority) {
  if (priority == Priority::kNormal) return;
  // Also where it is idle: nice counts among those who are.
  ::setpriority(PRIO_PROCESS, 0, 10);
  const sched_param none{};
  ::sched_setscheduler(0, priority == Priority::kIdle ? SCHED_IDLE : SCHED_BATCH, &none);
}

}  // namespace stoker::evaluator
