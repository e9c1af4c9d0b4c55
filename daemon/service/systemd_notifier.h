// SystemdNotifier: tells systemd how the service is doing (the sd_notify protocol, without libsystemd).
//
// Where NOTIFY_SOCKET is not set, nobody asked, and every method does nothing.
//
// Threads:  every method may be called from any thread.
// Blocking: at most 200 ms, while systemd does not read.
// Errors:   the first is logged; none ends or changes anything else.
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
  SystemdNotifier();  // NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID of the environment
  // `socket`: a path, or '@' and a name of the abstract namespace; empty: nobody asked.
  SystemdNotifier(std::string socket, std::optional<std::chrono::microseconds> maybe_watchdog);

  bool connected() const { return socket_.valid(); }
  // How long the service may stay silent before systemd kills it; nothing: as long as it likes.
  std::optional<std::chrono::microseconds> find_watchdog_interval() const {
    return maybe_watchdog_;
  }

  void ready();                        // started; also the end of a reload
  void status(std::string_view text);  // one line for `systemctl status`
  void alive();                        // WATCHDOG=1
  void stopping();
  // Starting or stopping takes longer: at least this much from now.
  void extend_timeout(std::chrono::microseconds by);

 private:
  void send(std::string_view message);
  void connect(std::string name);

  // Constant after construction.
  UniqueFd socket_;
  std::optional<std::chrono::microseconds> maybe_watchdog_;

  std::atomic<bool> failed_{false};  // an error was logged; a single flag, orders nothing
};

// From the text of WATCHDOG_USEC and WATCHDOG_PID (empty: not set). Nothing where the watchdog is
// off or is another process's.
std::optional<std::chrono::microseconds> find_watchdog_interval(std::string_view usec,
                                                                std::string_view pid, int own_pid);

inline constexpr std::chrono::minutes kMaxSaveDuration{10};

// Watchdog: tells systemd that the service is alive, only while training makes progress.
//
// A trainer that hangs in a kernel or a driver leaves the main thread well: a timer that just pings
// would hide that. So the ping needs a counter that moved, or a state in which training rightly
// stands still: paused; starting (no limit: a first look at ten million files takes its time);
// saving and stopping (for at most ten minutes).
//
// Threads:  tick() from one thread, the main loop's timer; more often than half the watchdog's
//           interval.
// Blocking: as SystemdNotifier.
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
