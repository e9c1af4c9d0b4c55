#include "daemon/supervisor/restart_limiter.h"

namespace stoker::supervisor {
namespace {

Status give_up(const std::string& how_often, const std::string& cause) {
  return Status(
      StatusCode::kInternal,
      "worker processes keep dying (" + how_often + "; the last by " + cause +
          "): their lines in the log say why, and feed.num_processes: 0 helps to find it");
}

}  // namespace

Status RestartLimiter::record_crash(const Crash& crash) {
  ++crashes_;
  last_minute_.push_back(crash.now);
  while (crash.now - last_minute_.front() > std::chrono::minutes(1)) last_minute_.pop_front();
  if (crash.made_progress || crash.published != published_)
    crashes_without_progress_ = failures_without_progress_ = 0;
  published_ = crash.published;
  ++crashes_without_progress_;
  if (crash.is_unprovoked) ++failures_without_progress_;
  if (crashes_without_progress_ >= kMaxCrashesWithoutProgress ||
      failures_without_progress_ >= kMaxFailuresWithoutProgress)
    return give_up(std::to_string(crashes_without_progress_) + " without one new batch",
                   crash.cause);
  if (last_minute_.size() > max_crashes_per_minute_)
    return give_up(std::to_string(last_minute_.size()) +
                       " within a minute, more than feed.max_restarts_per_minute = " +
                       std::to_string(max_crashes_per_minute_),
                   crash.cause);
  return {};
}

}  // namespace stoker::supervisor
