#include "daemon/service/watchdog.h"

#include <algorithm>
#include <utility>

#include "shared/base/log.h"

namespace stoker::service {
namespace {

using control::TrainerPhase;
using std::chrono::nanoseconds;

double seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

std::string_view waiting_for(TrainerPhase phase) {
  switch (phase) {
    case TrainerPhase::kStart:
      return "the index of the data, the checkpoint to resume from, the model, or the workers";
    case TrainerPhase::kStep:
      return "the computation of a micro-batch, or the device";
    case TrainerPhase::kData:
      return "a batch of the workers: their data, or the disk or network that it is on";
    case TrainerPhase::kCheckpoint:
      return "the disk or network that the run directory is on";
    case TrainerPhase::kUnwatched:
      break;
  }
  return "nothing";
}

std::string setting_of(TrainerPhase phase) {
  return "watchdog." + std::string(control::to_string(phase)) + "_timeout_seconds";
}

}  // namespace

Watchdog::Watchdog(const config::WatchdogConfig& config, Clock& clock,
                   std::function<WatchedRun()> observe)
    : config_(config),
      clock_(clock),
      observe_(std::move(observe)),
      checked_at_(clock.monotonic()) {}

std::optional<Watchdog::Expired> Watchdog::check() {
  const nanoseconds now = clock_.monotonic();
  const nanoseconds elapsed =
      std::min<nanoseconds>(now - std::exchange(checked_at_, now), kMaxInterval);
  const WatchedRun run = observe_();
  const TrainerPhase save =
      run.save_progress ? TrainerPhase::kCheckpoint : TrainerPhase::kUnwatched;
  auto expired = check_timer(trainer_, run.phase, run.progress, elapsed, run.step);
  if (!expired)
    expired = check_timer(save_, save, run.save_progress.value_or(0), elapsed, run.step);
  return expired;
}

bool Watchdog::Timer::restart_if_changed(TrainerPhase now, uint64_t progress) {
  if (std::exchange(phase, now) == now && std::exchange(progress_, progress) == progress)
    return false;
  progress_ = progress;
  idle = nanoseconds(0);
  has_warned = false;
  return true;
}

std::optional<Watchdog::Expired> Watchdog::check_timer(Timer& timer, TrainerPhase phase,
                                                       uint64_t progress, nanoseconds elapsed,
                                                       uint64_t step) {
  const Timer before = timer;
  if (timer.restart_if_changed(phase, progress)) {
    if (before.has_warned)
      log_info("training recovered", {{"phase", control::to_string(before.phase)},
                                      {"duration_seconds", seconds(before.idle + elapsed)}});
    return std::nullopt;
  }
  timer.idle += elapsed;
  const auto timeout = timeout_of(phase);
  if (!timeout || timer.idle < *timeout / 2) return std::nullopt;
  if (!std::exchange(timer.has_warned, true))
    log_warn("training stalled", {{"phase", control::to_string(phase)},
                                  {"duration_seconds", seconds(timer.idle)},
                                  {"timeout_seconds", seconds(*timeout)},
                                  {"step", step},
                                  {"waiting_for", waiting_for(phase)}});
  if (timer.idle < *timeout) return std::nullopt;
  log_error("watchdog expired", {{"phase", control::to_string(phase)},
                                 {"duration_seconds", seconds(timer.idle)},
                                 {"step", step},
                                 {"waiting_for", waiting_for(phase)},
                                 {"hint",
                                  "the stacks tell where it hangs; if it is only slow, "
                                  "increase " +
                                      setting_of(phase)}});
  return Expired{phase, timer.idle, step, std::string(waiting_for(phase))};
}

std::optional<nanoseconds> Watchdog::timeout_of(TrainerPhase phase) const {
  std::optional<double> setting;
  switch (phase) {
    case TrainerPhase::kUnwatched:
      break;
    case TrainerPhase::kStart:
      setting = config_.start_timeout_seconds;
      break;
    case TrainerPhase::kStep:
      setting = config_.step_timeout_seconds;
      break;
    case TrainerPhase::kData:
      setting = config_.data_timeout_seconds;
      break;
    case TrainerPhase::kCheckpoint:
      setting = config_.checkpoint_timeout_seconds;
      break;
  }
  if (!setting) return std::nullopt;
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(*setting));
}

}  // namespace stoker::service
