// CoreSharing: pauses an evaluator that competes with other programs for the cores, so that a
// trainer on the same machine is slowed by a few percent of its time at most.
//
// A low priority alone does not achieve that. The trainer's threads wait for each other several
// hundred times per step, so one of them that loses its core for a moment delays all, and two
// hardware threads share one core's units and caches. What remains is to compute less often: an
// evaluator that had to wait for a core computes at most kShare of the time, in bursts.
//
// The kernel tells whether it had to wait, so neither the trainer's device nor its number of threads
// has to be known, and an evaluator with a free core never pauses.
//
// Threads: the evaluating thread. Its other threads (eval.num_threads) work only while it does.
// Errors:  none; without the kernel's accounting there are no pauses.
#pragma once

#include <chrono>
#include <functional>

namespace stoker::evaluator {

// Of one thread since its start.
struct CoreTime {
  std::chrono::nanoseconds running{0};
  std::chrono::nanoseconds runnable{0};  // ready to run, but no core was free
};
// Of the calling thread, from /proc/thread-self/schedstat; zero if the kernel does not count it.
CoreTime read_core_time();

class CoreSharing {
 public:
  // Share of the time in which a competing evaluator computes or waits for a core.
  static constexpr double kShare = 0.2;
  // Fraction of a burst spent waiting for a core from which on the evaluator is competing.
  static constexpr double kContention = 0.1;
  // Shorter bursts are merged, because a single time slice would decide on them.
  static constexpr std::chrono::milliseconds kMinBurst{20};

  explicit CoreSharing(std::function<CoreTime()> core_time = read_core_time);

  // How long to pause now. Call it between two batches; a burst starts where the last one ended.
  std::chrono::nanoseconds pause_due();

 private:
  std::function<CoreTime()> core_time_;
  CoreTime burst_start_;
};

}  // namespace stoker::evaluator
