// SaveTriggers: when a checkpoint is due without anybody asking for it.
//
// By steps one is due at its step and then no more; for any other reason it stays due until a
// snapshot is taken. A snapshot for one reason serves the others.
//
// Threads: a value of the trainer's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "daemon/train/loss_trend.h"
#include "shared/config/run_config.h"

namespace stoker::train {

enum class SaveReason {
  kNone,
  kSteps,        // checkpoint.save_every_steps
  kSeconds,      // checkpoint.save_every_seconds
  kImprovement,  // checkpoint.save_on_loss_improvement
  kRetry,        // the last one could not be written, and some time has passed since
  kAfterResume,  // the run goes on with what its checkpoint would refuse
};

class SaveTriggers {
 public:
  static constexpr std::chrono::seconds kFirstRetry{30};  // then twice as long each time, up to
  static constexpr std::chrono::seconds kLastRetry{600};

  // `is_after_resume`: one is due at once. The settings must outlive this object.
  SaveTriggers(const config::CheckpointConfig& options, bool is_after_resume)
      : options_(options), is_after_resume_(is_after_resume) {}

  // Training begins: nothing is due by the clock yet.
  void start(std::chrono::nanoseconds now) { saved_at_ = now; }
  // After `step` was done. `is_degraded`: the last one submitted could not be written.
  SaveReason due(uint64_t step, std::chrono::nanoseconds now, const LossTrend& trend,
                 bool is_degraded);
  void record_save(std::chrono::nanoseconds now);

 private:
  bool is_retry_due(std::chrono::nanoseconds now, bool is_degraded);

  const config::CheckpointConfig& options_;
  bool is_after_resume_;
  std::chrono::nanoseconds saved_at_{0};
  std::optional<std::chrono::nanoseconds> maybe_retry_at_;
  std::chrono::seconds retry_delay_ = kFirstRetry;
};

}  // namespace stoker::train
