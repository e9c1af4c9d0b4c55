// Watchdog: tells systemd that the service is alive, only while training makes progress.
//
// A trainer that hangs in a kernel or a driver leaves the main thread well: a timer that just pings
// would hide that. So the ping needs a counter that moved, or a state in which training rightly
// stands still: paused; starting (no limit: a first look at ten million files takes its time);
// saving and stopping (for at most ten minutes).
//
// Threads:  tick() from one thread, the main loop's timer; more often than half the watchdog's
//           interval.
// Blocking: as Notifier.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "daemon/service/systemd_notifier.h"
#include "shared/base/clock.h"
#include "shared/control/trainer_status.h"

namespace stoker::service {

inline constexpr std::chrono::minutes kMaxSaveDuration{10};

class Watchdog {
 public:
  // `progress`: a counter that moves with training. `notifier` and `clock` must outlive this
  // object.
  Watchdog(SystemdNotifier& notifier, Clock& clock, std::function<uint64_t()> progress);

  void tick(const control::TrainerStatus& status);
  // For how long the counter has not moved.
  std::chrono::nanoseconds stalled_for() const { return clock_.monotonic() - moved_at_; }

 private:
  bool may_stall(control::TrainerState state) const;
  void log_stall(const control::TrainerStatus& status);

  // Constant after construction.
  SystemdNotifier& notifier_;
  Clock& clock_;
  const std::function<uint64_t()> progress_;
  const std::chrono::nanoseconds warn_after_;

  uint64_t seen_ = 0;
  std::chrono::nanoseconds moved_at_;
  bool logged_ = false;  // of this standstill
};

}  // namespace stoker::service
