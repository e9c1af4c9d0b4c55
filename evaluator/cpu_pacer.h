// CpuPacer: limits the CPU time of an evaluator that competes with a trainer on the same machine.
//
// A low priority is not enough if the trainer's threads use all CPUs. They wait for each other
// hundreds of times per step, so a thread that loses its CPU for a moment delays all of them. An
// evaluator that had to wait for a CPU therefore pauses between batches. The kernel reports such
// waits, so the trainer's device and number of threads need not be known; an evaluator that finds
// a free CPU never pauses. Training is slowed roughly by the CPU time that the evaluator takes, so
// its share is small; it pauses only while training runs.
//
// Waits are those of the evaluating thread. The kernel counts the time in which a CPU quota (cgroup)
// stops it as well; that of a quota that training does not share is subtracted.
//
// Threads:  the evaluating thread; a stop can be requested from any.
// Blocking: pause_if_due(), until the pause is over, training has ended or a stop is requested.
// Errors:   none; if the kernel does not report run delays, there are no pauses.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>

#include "shared/base/clock.h"

namespace stoker::evaluator {

struct CpuTimes {
  // Of one thread since it started.
  std::chrono::nanoseconds run_time{0};
  std::chrono::nanoseconds run_delay{0};  // runnable without a CPU
  // In which a quota stopped threads of its process, summed over CPUs.
  std::chrono::nanoseconds throttled{0};
};
// Of the calling thread, without `throttled`; zero if the kernel does not report them.
CpuTimes read_cpu_times();

// In which the quota of a cgroup (v1 or v2) stopped its threads; zero without a quota.
// `cgroup_file`: /proc/PID/cgroup of one of its processes. The quotas of groups around it, which
// other programs can share, do not count.
std::chrono::nanoseconds read_throttled_time(const std::string& cgroup_file,
                                             const std::string& mount = "/sys/fs/cgroup");

// Whether a process is in the same cgroups as this one, and therefore has the same quota.
bool shares_cgroup(pid_t process);

class CpuPacer {
 public:
  // Maximum fraction of time that a competing evaluator computes, reading of samples included.
  static constexpr double kDutyCycle = 0.04;
  // Minimum fraction of run_delay in a burst that counts as competition.
  static constexpr double kMinContention = 0.1;
  // A shorter burst continues after the next batch: a single time slice is no competition.
  static constexpr std::chrono::milliseconds kMinBurst{200};
  // Interval of the checks during a pause whether training still runs.
  static constexpr std::chrono::seconds kCheckInterval{1};

  // Sleeps for that time, less if a stop is requested.
  using Sleep = std::function<void(std::chrono::nanoseconds, const std::stop_token&)>;

  // `clock` must outlive this object.
  CpuPacer(Clock& clock, Sleep sleep, std::function<CpuTimes()> cpu_times = read_cpu_times);

  // Starts a burst, at the start of an evaluation.
  void start_burst();
  // Call it between two batches. Returns the duration of the pause, often 0. A pause ends when
  // `is_training` returns false.
  std::chrono::nanoseconds pause_if_due(const std::stop_token& stop,
                                        const std::function<bool()>& is_training);

 private:
  std::chrono::nanoseconds pause_due();

  Clock& clock_;
  const Sleep sleep_;
  const std::function<CpuTimes()> cpu_times_;
  std::chrono::nanoseconds burst_start_{0};
  CpuTimes times_at_start_;
};

}  // namespace stoker::evaluator
