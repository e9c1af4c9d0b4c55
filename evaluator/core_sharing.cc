#include "evaluator/core_sharing.h"

#include <cstdint>
#include <fstream>
#include <utility>

namespace stoker::evaluator {

using std::chrono::nanoseconds;

CoreTime read_core_time() {
  std::ifstream file("/proc/thread-self/schedstat");
  int64_t running = 0;
  int64_t runnable = 0;
  if (!(file >> running >> runnable)) return {};
  return {nanoseconds(running), nanoseconds(runnable)};
}

CoreSharing::CoreSharing(std::function<CoreTime()> core_time)
    : core_time_(std::move(core_time)), burst_start_(core_time_()) {}

nanoseconds CoreSharing::pause_due() {
  const CoreTime now = core_time_();
  const nanoseconds waited = now.runnable - burst_start_.runnable;
  const nanoseconds burst = now.running - burst_start_.running + waited;
  if (burst < kMinBurst) return nanoseconds(0);
  burst_start_ = now;
  const auto in_seconds = [](nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  if (in_seconds(waited) < kContention * in_seconds(burst)) return nanoseconds(0);
  return std::chrono::duration_cast<nanoseconds>(burst * (1 / kShare - 1));
}

}  // namespace stoker::evaluator
