// ProgressReporter: reports training progress as the progress line of a terminal, as systemd's status
// text, and as occasional log lines.
//
// Threads:   the main thread.
// Blocking:  while a line is written to the terminal and a datagram to systemd.
// Ownership: notifier and clock must outlive this object.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/service/systemd_notifier.h"
#include "shared/base/clock.h"
#include "shared/control/trainer_status.h"

namespace stoker::app {

// "training  step 1 200/2 000 60 %  loss 1.403  lr 0.000300  812 samples/s  data wait 0.120 ms  ETA 67 s".
// Truncated to `columns`.
std::string progress_line(const control::TrainerStatus& status, size_t columns);

class ProgressReporter {
 public:
  ProgressReporter(service::SystemdNotifier& notifier, const Clock& clock)
      : notifier_(notifier), clock_(clock) {}

  void report(const control::TrainerStatus& status);

 private:
  void log(const control::TrainerStatus& status);

  service::SystemdNotifier& notifier_;
  const Clock& clock_;
  uint64_t logged_step_ = 0;
  std::chrono::nanoseconds logged_at_{0};
};

}  // namespace stoker::app
