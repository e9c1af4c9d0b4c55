#include "evaluator/cpu_pacer.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <utility>

namespace stoker::evaluator {

using std::chrono::nanoseconds;

CpuTimes read_cpu_times() {
  std::ifstream file("/proc/thread-self/schedstat");
  int64_t run_time = 0;
  int64_t run_delay = 0;
  if (!(file >> run_time >> run_delay)) return {};
  return {nanoseconds(run_time), nanoseconds(run_delay)};
}

CpuPacer::CpuPacer(Clock& clock, Sleep sleep, std::function<CpuTimes()> cpu_times)
    : clock_(clock), sleep_(std::move(sleep)), cpu_times_(std::move(cpu_times)) {
  start_burst();
}

void CpuPacer::start_burst() {
  burst_start_ = clock_.monotonic();
  times_at_start_ = cpu_times_();
}

nanoseconds CpuPacer::pause_due() {
  const nanoseconds now = clock_.monotonic();
  const nanoseconds burst = now - burst_start_;
  if (burst < kMinBurst) return nanoseconds(0);
  burst_start_ = now;
  const CpuTimes before = std::exchange(times_at_start_, cpu_times_());
  const nanoseconds waited = times_at_start_.run_delay - before.run_delay;
  const nanoseconds wanted = times_at_start_.run_time - before.run_time + waited;
  if (waited <= nanoseconds(0) || waited < wanted * kMinContention) return nanoseconds(0);
  // A thread that waits for a CPU does not slow training.
  const auto computed = std::max<nanoseconds>(burst - waited, nanoseconds(0));
  return std::chrono::duration_cast<nanoseconds>(computed * (1 / kDutyCycle - 1));
}

nanoseconds CpuPacer::pause_if_due(const std::stop_token& stop,
                                   const std::function<bool()>& is_training) {
  const nanoseconds due = pause_due();
  if (due <= nanoseconds(0)) return nanoseconds(0);
  const nanoseconds start = clock_.monotonic();
  nanoseconds paused{0};
  while (paused < due && !stop.stop_requested() && is_training()) {
    sleep_(std::min<nanoseconds>(due - paused, kCheckInterval), stop);
    paused = clock_.monotonic() - start;
  }
  start_burst();
  return paused;
}

}  // namespace stoker::evaluator
