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
#include <optional>
#include <string>
#include <string_view>

#include "shared/base/unique_fd.h"

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

}  // namespace stoker::service
