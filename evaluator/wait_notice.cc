#include "evaluator/wait_notice.h"

#include "shared/base/log.h"

namespace stoker::evaluator {

std::optional<std::chrono::nanoseconds> WaitNotice::maybe_due(const std::string& reason) {
  const auto now = clock_.monotonic();
  if (reason != reason_) {
    reason_ = reason;
    since_ = said_ = now;
    return std::chrono::nanoseconds{0};
  }
  if (now - said_ < kReminder) return std::nullopt;
  said_ = now;
  return now - since_;
}

void WaitNotice::waiting(const std::string& reason) {
  const auto waited = maybe_due(reason);
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
