#include "daemon/supervisor/crash_policy.h"

#include <algorithm>

#include "shared/base/log.h"

namespace stoker::supervisor {

Status Quarantine::put(uint64_t sample) {
  if (std::find(samples_.begin(), samples_.end(), sample) != samples_.end()) return {};
  if (!table_.quarantine(sample))
    return Status(StatusCode::kCorrupt,
                  "data.train: more than " + std::to_string(feed::kMaxQuarantined) +
                      " samples crash their worker process; check the data and the "
                      "memory limit of worker processes");
  samples_.push_back(sample);
  return {};
}

Status Quarantine::restore(const std::vector<uint64_t>& samples) {
  for (const uint64_t sample : samples) STOKER_RETURN_IF_ERROR(put(sample));
  return {};
}

Result<bool> Quarantine::assess_crash(uint32_t worker, std::string_view cause,
                                      CrashAttribution attribution) {
  auto marked_samples = table_.drain_marks(worker);
  if (attribution == CrashAttribution::kNone) return false;
  // The indices come from another process and are not trusted to be in range.
  const uint64_t num_samples = maybe_dataset_ == nullptr ? 0 : maybe_dataset_->size();
  std::erase_if(marked_samples, [=](uint64_t sample) { return sample >= num_samples; });
  std::erase_if(num_crashes_, [this](const auto& entry) { return !table_.suspected(entry.first); });
  for (const uint64_t sample : marked_samples)
    if (table_.suspect(sample)) num_crashes_.try_emplace(sample, 0);
  if (marked_samples.size() != 1) return false;
  const uint64_t sample = marked_samples.front();
  const auto suspect = num_crashes_.find(sample);
  if (suspect == num_crashes_.end() || ++suspect->second < feed::kCrashesToQuarantine) return false;
  STOKER_RETURN_IF_ERROR(put(sample));
  table_.clear_suspect(sample);
  num_crashes_.erase(suspect);
  const auto source = maybe_dataset_->source(sample);
  log_error("sample quarantined", {{"sample", sample},
                                   {"path", source.file},
                                   {"offset", source.offset},
                                   {"crashes", feed::kCrashesToQuarantine},
                                   {"cause", cause}});
  return true;
}

namespace {

Status restart_limit_status(const RestartLimiter::Crash& last, const std::string& frequency) {
  if (!last.failure.ok())
    return last.failure.with_context("worker processes fail repeatedly (" + frequency + ")");
  return Status(last.code, "worker processes crash repeatedly (" + frequency +
                               "; last cause: " + last.cause + "); " + last.hint);
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
    return restart_limit_status(crash, std::to_string(crashes_without_progress_) +
                                           (crash.failure.ok() ? " crashes" : " times") +
                                           " without a new batch");
  if (last_minute_.size() > max_crashes_per_minute_)
    return restart_limit_status(
        crash, std::to_string(last_minute_.size()) + (crash.failure.ok() ? " crashes" : " times") +
                   " within a minute, more than feed.max_restarts_per_minute = " +
                   std::to_string(max_crashes_per_minute_));
  return {};
}

}  // namespace stoker::supervisor
