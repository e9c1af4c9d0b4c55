// SystemdNotifier: reports the service state to systemd with the sd_notify protocol, without
// libsystemd.
//
// If NOTIFY_SOCKET is not set, every method does nothing.
//
// Threads:  every method may be called from any thread.
// Blocking: up to 200 ms while systemd does not read.
// Errors:   the first one is logged; errors have no other effect.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/control/trainer_status.h"

namespace stoker::service {

class SystemdNotifier {
 public:
  SystemdNotifier();  // from NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID
  // `socket`: a path, or '@' and a name in the abstract namespace; empty: disabled.
  SystemdNotifier(std::string socket, std::optional<std::chrono::microseconds> maybe_watchdog);

  // The time without a ping after which systemd kills the service; empty: no watchdog.
  std::optional<std::chrono::microseconds> find_watchdog_interval() const {
    return maybe_watchdog_;
  }

  void ready();                        // startup or reload is complete
  void status(std::string_view text);  // one line for `systemctl status`
  void alive();                        // WATCHDOG=1
  void stopping();
  // Starting or stopping takes at least this much longer.
  void extend_timeout(std::chrono::microseconds by);

 private:
  void send(std::string_view message);
  void connect(std::string name);

  // Constant after construction.
  UniqueFd socket_;
  std::optional<std::chrono::microseconds> maybe_watchdog_;

  std::atomic<bool> failed_{false};  // an error was logged; independent flag
};

// Parses WATCHDOG_USEC and WATCHDOG_PID (empty: not set). Empty if the watchdog is off or belongs
// to another process.
std::optional<std::chrono::microseconds> find_watchdog_interval(std::string_view usec,
                                                                std::string_view pid, int own_pid);

inline constexpr std::chrono::minutes kMaxSaveDuration{10};

// Watchdog: pings the systemd watchdog only while training makes progress.
//
// If the trainer hangs in a kernel or a driver, the main thread keeps running, so a timer that
// always pings would hide the hang. A ping therefore requires that the progress counter has
// changed, or a state in which training legitimately makes no progress: paused; starting (without
// limit, because indexing ten million files takes time); saving and stopping (for up to ten
// minutes).
//
// Threads:  tick() from one thread, the main loop's timer; more often than half the watchdog's
//           interval.
// Blocking: as SystemdNotifier.
class Watchdog {
 public:
  // `progress`: a counter that increases during training. `notifier` and `clock` must outlive this
  // object.
  Watchdog(SystemdNotifier& notifier, Clock& clock, std::function<uint64_t()> progress);

  void tick(const control::TrainerStatus& status);
  // The time since the counter last changed.
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
  bool logged_ = false;  // this stall was logged
};

}  // namespace stoker::service
