#include "daemon/train/save_triggers.h"

#include <algorithm>

#include "shared/base/clock.h"

namespace stoker::train {

SaveReason SaveTriggers::due(uint64_t step, std::chrono::nanoseconds now, const LossTrend& trend,
                             bool is_degraded) {
  const bool is_retry = is_retry_due(now, is_degraded);
  if (options_.save_every_steps && step % *options_.save_every_steps == 0)
    return SaveReason::kSteps;
  if (is_after_resume_) return SaveReason::kAfterResume;
  if (is_retry) return SaveReason::kRetry;
  // After a failed save the reasons below trigger nothing; the retry delay limits the attempts.
  if (is_degraded) return SaveReason::kNone;
  if (options_.save_every_seconds &&
      seconds_between(saved_at_, now) >= *options_.save_every_seconds)
    return SaveReason::kSeconds;
  if (options_.save_on_loss_improvement &&
      trend.has_improved_by(*options_.save_on_loss_improvement))
    return SaveReason::kImprovement;
  return SaveReason::kNone;
}

bool SaveTriggers::is_retry_due(std::chrono::nanoseconds now, bool is_degraded) {
  if (!is_degraded) {
    maybe_retry_at_.reset();
    retry_delay_ = kFirstRetry;
    return false;
  }
  if (!maybe_retry_at_) maybe_retry_at_ = now + retry_delay_;
  return now >= *maybe_retry_at_;
}

void SaveTriggers::record_save(std::chrono::nanoseconds now) {
  saved_at_ = now;
  is_after_resume_ = false;
  if (maybe_retry_at_) retry_delay_ = std::min(2 * retry_delay_, kLastRetry);
  maybe_retry_at_.reset();
}

}  // namespace stoker::train
