// cpu_time_per_call: repeats an operation and returns the processor time of the process per call,
// which other programs on the machine influence less than elapsed time.
//
// Errors: the first error of the operation.
#pragma once

#include <chrono>
#include <ctime>

#include "shared/base/status.h"

namespace stoker::bench {

// Of the whole process.
inline double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Seconds. `work` returns a Status and is called at least once, until `time` has been used.
template <typename Work>
Result<double> cpu_time_per_call(const Work& work, std::chrono::nanoseconds time) {
  const double limit = std::chrono::duration<double>(time).count();
  const double start = cpu_seconds();
  for (double calls = 1;; ++calls) {
    STOKER_RETURN_IF_ERROR(work());
    const double used = cpu_seconds() - start;
    if (used >= limit && used > 0) return used / calls;
  }
}

}  // namespace stoker::bench
