// SystemdNotifier: reports the service state to systemd with the sd_notify protocol. Unlike sd_notify() of
// libsystemd, it does not wait without a limit.
//
// If NOTIFY_SOCKET is not set, every method does nothing.
//
// Threads:  every method may be called from any thread.
// Blocking: up to 200 ms while systemd does not read.
// Errors:   the first one is logged; errors have no other effect.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>

#include "shared/base/file.h"

namespace stoker::service {

class SystemdNotifier {
 public:
  SystemdNotifier();  // from NOTIFY_SOCKET
  // `socket`: a path, or '@' and a name in the abstract namespace; empty: disabled.
  explicit SystemdNotifier(std::string socket);

  void ready();  // startup or reload is complete
  // A reload has started; ready() ends it. `now`: CLOCK_MONOTONIC.
  void reloading(std::chrono::nanoseconds now);
  void status(std::string_view text);  // one line for `systemctl status`
  void alive();  // WATCHDOG=1: the main thread runs; Watchdog finds that training hangs
  void stopping();
  // Starting or stopping takes at least this much longer. Until alive() is called again, systemd's watchdog
  // waits as long.
  void extend_timeout(std::chrono::microseconds by);

 private:
  void send(std::string_view message);
  void connect(std::string name);

  UniqueFd socket_;                  // constant after construction
  std::atomic<bool> failed_{false};  // an error was logged; independent flag
};

}  // namespace stoker::service
