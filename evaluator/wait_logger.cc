#include "evaluator/wait_logger.h"

#include "shared/base/log.h"

namespace stoker::evaluator {

std::optional<std::chrono::nanoseconds> WaitLogger::find_reminder(const std::string& reason) {
  const auto now = clock_.monotonic();
  if (reason != reason_) {
    reason_ = reason;
    since_ = logged_at_ = now;
    return std::chrono::nanoseconds{0};
  }
  if (now - logged_at_ < kReminder) return std::nullopt;
  logged_at_ = now;
  return now - since_;
}

void WaitLogger::waiting(const std::string& reason) {
  const auto waited = find_reminder(reason);
  if (!waited) return;
  if (*waited == std::chrono::nanoseconds{0})
    log_info("waiting", {{"reason", reason}});
  else
    log_info(
        "still waiting",
        {{"reason", reason},
         {"duration_seconds", std::chrono::duration_cast<std::chrono::seconds>(*waited).count()}});
}

}  // namespace stoker::evaluator
