// Watchdog: finds that a phase of the run makes no progress: once as a warning at half of its timeout,
// then as the reason to end the process.
//
// It counts only the time in which this process runs: after a stop (SIGSTOP), or while the machine was
// suspended, a phase has the rest of its time again.
//
// Threads: one, which must be another than those that it watches: the main thread and the trainer can
//          wait for the same file system. check() must be called at least every kMaxInterval.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "shared/base/clock.h"
#include "shared/config/run_config.h"
#include "shared/control/trainer_phase.h"

namespace stoker::service {

// A run at one moment.
struct WatchedRun {
  control::TrainerPhase phase = control::TrainerPhase::kUnwatched;
  uint64_t progress = 0;  // changes while the phase makes progress
  // Of the checkpoint that is being written; nullopt: none.
  std::optional<uint64_t> save_progress;
  uint64_t step = 0;
};

class Watchdog {
 public:
  // Longer intervals count as this long.
  static constexpr std::chrono::seconds kMaxInterval{1};

  struct Expired {
    control::TrainerPhase phase = control::TrainerPhase::kUnwatched;
    std::chrono::nanoseconds idle{0};  // time without progress
    uint64_t step = 0;
    std::string waiting_for;
  };

  // `observe` is called by check(), and must not block. `clock` must outlive this object.
  Watchdog(const config::WatchdogConfig& config, Clock& clock, std::function<WatchedRun()> observe);

  // Logs warnings and recoveries. A value, and an event, if a phase has exceeded its timeout.
  std::optional<Expired> check();

 private:
  class Timer {
   public:
    bool restart_if_changed(control::TrainerPhase phase, uint64_t progress);

    control::TrainerPhase phase = control::TrainerPhase::kUnwatched;
    std::chrono::nanoseconds idle{0};
    bool has_warned = false;

   private:
    uint64_t progress_ = 0;
  };

  std::optional<Expired> check_timer(Timer& timer, control::TrainerPhase phase, uint64_t progress,
                                     std::chrono::nanoseconds elapsed, uint64_t step);
  std::optional<std::chrono::nanoseconds> timeout_of(control::TrainerPhase phase) const;

  const config::WatchdogConfig config_;
  Clock& clock_;
  const std::function<WatchedRun()> observe_;
  std::chrono::nanoseconds checked_at_;
  Timer trainer_, save_;
};

}  // namespace stoker::service
