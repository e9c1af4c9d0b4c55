// SaveTriggers: decides when a checkpoint is due without a request.
//
// A checkpoint by steps is due only at its step. For any other reason it stays due until a snapshot
// is taken. One snapshot satisfies all reasons.
//
// Threads: owned by the trainer thread.
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
  kRetry,        // the last save failed, and the retry delay has passed
  kAfterResume,  // resumed with an --allow-…-change flag; the next start then needs none
  kAnnounced,    // by the chief of a sharded run, for any of the reasons; not by SaveTriggers
};

class SaveTriggers {
 public:
  static constexpr std::chrono::seconds kFirstRetry{30};  // doubles up to kLastRetry
  static constexpr std::chrono::seconds kLastRetry{600};

  // `is_after_resume`: a checkpoint is due immediately. `options` must outlive this object.
  SaveTriggers(const config::CheckpointConfig& options, bool is_after_resume)
      : options_(options), is_after_resume_(is_after_resume) {}

  // Call when training starts; save_every_seconds counts from here.
  void start(std::chrono::nanoseconds now) { saved_at_ = now; }
  // Call after `step` is done. `is_degraded`: the last submitted checkpoint could not be written.
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
