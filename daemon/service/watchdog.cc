#include "daemon/service/watchdog.h"

#include <utility>

#include "shared/base/log.h"

namespace stoker::service {
namespace {

using control::TrainerState;
using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds kWarnAfter = 30s;
// Asked for again at each tick, so it only has to outlast a slow one.
constexpr auto kExtension = 60s;

}  // namespace

Watchdog::Watchdog(SystemdNotifier& notifier, Clock& clock, std::function<uint64_t()> progress)
    : notifier_(notifier),
      clock_(clock),
      progress_(std::move(progress)),
      // Half the interval: the log tells before systemd kills.
      warn_after_(notifier.find_watchdog_interval()
                      ? std::chrono::nanoseconds(*notifier.find_watchdog_interval()) / 2
                      : kWarnAfter),
      seen_(progress_()),
      moved_at_(clock.monotonic()) {}

void Watchdog::tick(const control::TrainerStatus& status) {
  const uint64_t now = progress_();
  const bool moved = now != seen_;
  if (moved) {
    if (logged_)
      log_info("training recovered",
               {{"duration_seconds", std::chrono::duration<double>(stalled_for()).count()}});
    seen_ = now;
    moved_at_ = clock_.monotonic();
    logged_ = false;
  }
  const bool may_stand = may_stall(status.state);
  const bool transition =
      status.state == TrainerState::kStarting || status.state == TrainerState::kStopping;
  if ((moved || may_stand) && transition) notifier_.extend_timeout(kExtension);
  if (moved || may_stand) {
    notifier_.alive();
  } else if (stalled_for() >= warn_after_) {
    log_stall(status);
  }
}

bool Watchdog::may_stall(TrainerState state) const {
  switch (state) {
    case TrainerState::kPaused:
    case TrainerState::kStarting:
      return true;
    case TrainerState::kSaving:
    case TrainerState::kStopping:
      return stalled_for() < kMaxSaveDuration;
    case TrainerState::kTraining:
    case TrainerState::kDegraded:
      return false;
  }
  return false;
}

void Watchdog::log_stall(const control::TrainerStatus& status) {
  if (std::exchange(logged_, true)) return;
  log_error(
      "training stalled",
      {{"duration_seconds", std::chrono::duration<double>(stalled_for()).count()},
       {"state", control::to_string(status.state)},
       {"step", status.step},
       {"ready_batches", status.feed.ready_batches},
       {"hint", status.feed.ready_batches == 0 ? "no batch is ready: check the workers and the disk"
                                               : "batches are ready: the step itself hangs"}});
}

}  // namespace stoker::service
