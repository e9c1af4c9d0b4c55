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

Watchdog::Watchdog(Notifier& notifier, Clock& clock, std::function<uint64_t()> progress)
    : notifier_(notifier),
      clock_(clock),
      progress_(std::move(progress)),
      // Half the interval: the log tells before systemd kills.
      warn_after_(notifier.maybe_watchdog_interval()
                      ? std::chrono::nanoseconds(*notifier.maybe_watchdog_interval()) / 2
                      : kWarnAfter),
      seen_(progress_()),
      moved_at_(clock.monotonic()) {}

void Watchdog::tick(const control::TrainerStatus& status) {
  const uint64_t now = progress_();
  const bool moved = now != seen_;
  if (moved) {
    if (told_)
      log_info("training recovered",
               {{"duration_seconds", std::chrono::duration<double>(standing()).count()}});
    seen_ = now;
    moved_at_ = clock_.monotonic();
    told_ = false;
  }
  const bool may_stand = may_stand_still(status.state);
  const bool transition =
      status.state == TrainerState::kStarting || status.state == TrainerState::kStopping;
  if ((moved || may_stand) && transition) notifier_.extend_timeout(kExtension);
  if (moved || may_stand) {
    notifier_.alive();
  } else if (standing() >= warn_after_) {
    tell_of_standing(status);
  }
}

bool Watchdog::may_stand_still(TrainerState state) const {
  switch (state) {
    case TrainerState::kPaused:
    case TrainerState::kStarting:
      return true;
    case TrainerState::kSaving:
    case TrainerState::kStopping:
      return standing() < kLongestSave;
    case TrainerState::kTraining:
    case TrainerState::kDegraded:
      return false;
  }
  return false;
}

void Watchdog::tell_of_standing(const control::TrainerStatus& status) {
  if (std::exchange(told_, true)) return;
  log_error(
      "training stalled",
      {{"duration_seconds", std::chrono::duration<double>(standing()).count()},
       {"state", control::state_name(status.state)},
       {"step", status.step},
       {"ready_batches", status.feed.ready_slots},
       {"hint", status.feed.ready_slots == 0 ? "no batch is ready: check the workers and the disk"
                                             : "batches are ready: the step itself hangs"}});
}

}  // namespace stoker::service
