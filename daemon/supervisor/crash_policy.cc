#include "daemon/supervisor/crash_policy.h"

#include <algorithm>

#include "shared/base/log.h"

namespace stoker::supervisor {

Status Quarantine::put(uint64_t sample) {
  if (std::find(samples_.begin(), samples_.end(), sample) != samples_.end()) return {};
  if (!table_.quarantine(sample))
    return Status(StatusCode::kCorrupt,
                  "data.train: more than " + std::to_string(feed::kMaxQuarantined) +
                      " samples kill their worker process; check the data, and the "
                      "memory that worker processes may use");
  samples_.push_back(sample);
  return {};
}

Status Quarantine::restore(const std::vector<uint64_t>& samples) {
  for (const uint64_t sample : samples) STOKER_RETURN_IF_ERROR(put(sample));
  return {};
}

Result<bool> Quarantine::assess_crash(uint32_t worker, std::string_view cause,
                                      CrashAttribution attribution) {
  auto in_hand = table_.drain_marks(worker);
  if (attribution == CrashAttribution::kNone) return false;
  // The indices come from another process and are not trusted to be in range.
  std::erase_if(in_hand, [this](uint64_t sample) { return sample >= dataset_.size(); });
  std::erase_if(kills_, [this](const auto& entry) { return !table_.suspected(entry.first); });
  for (const uint64_t sample : in_hand)
    if (table_.suspect(sample)) kills_.try_emplace(sample, 0);
  if (in_hand.size() != 1) return false;
  const uint64_t sample = in_hand.front();
  const auto suspect = kills_.find(sample);
  if (suspect == kills_.end() || ++suspect->second < kKillsToQuarantine) return false;
  STOKER_RETURN_IF_ERROR(put(sample));
  table_.clear_suspect(sample);
  kills_.erase(suspect);
  const auto source = dataset_.source(sample);
  log_error("sample quarantined", {{"sample", sample},
                                   {"path", source.file},
                                   {"offset", source.offset},
                                   {"crashes", kKillsToQuarantine},
                                   {"cause", cause}});
  return true;
}

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
