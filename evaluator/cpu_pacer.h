// CpuPacer: limits the CPU time of an evaluator that competes with a trainer on the same machine.
//
// A low priority is not enough if the trainer's threads use all CPUs. They wait for each other
// hundreds of times per step, so a thread that loses its CPU for a moment delays all of them. An
// evaluator that had to wait for a CPU therefore pauses between batches. The kernel reports such
// waits, so the trainer's device and number of threads need not be known; an evaluator that finds
// a free CPU never pauses.
//
// Waits are those of the evaluating thread. The kernel also counts the time in which a CPU quota
// (cgroup) stops it.
//
// Threads: the evaluating thread.
// Errors:  none; if the kernel does not report run delays, there are no pauses.
#pragma once

#include <chrono>
#include <functional>

#include "shared/base/clock.h"

namespace stoker::evaluator {

// Times of one thread since it started.
struct CpuTimes {
  std::chrono::nanoseconds run_time{0};
  std::chrono::nanoseconds run_delay{0};  // runnable without a CPU
};
// Of the calling thread; zero if the kernel does not report them.
CpuTimes read_cpu_times();

class CpuPacer {
 public:
  // Maximum fraction of time that a competing evaluator computes, reading of samples included.
  static constexpr double kDutyCycle = 0.2;
  // Minimum fraction of run_delay in a burst that counts as competition.
  static constexpr double kMinContention = 0.1;
  // A shorter burst continues after the next batch: a single time slice is no competition.
  static constexpr std::chrono::milliseconds kMinBurst{200};
  // The competition can end during a pause.
  static constexpr std::chrono::seconds kMaxPause{10};

  // `clock` must outlive this object.
  explicit CpuPacer(Clock& clock, std::function<CpuTimes()> cpu_times = read_cpu_times);

  // Starts a burst, at the start of an evaluation.
  void start_burst();
  // The pause that is due between two batches, often 0. After a pause, call start_burst().
  std::chrono::nanoseconds pause_due();

 private:
  Clock& clock_;
  const std::function<CpuTimes()> cpu_times_;
  std::chrono::nanoseconds burst_start_{0};
  CpuTimes times_at_start_;
};

}  // namespace stoker::evaluator
