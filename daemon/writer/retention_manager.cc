#include "daemon/writer/retention_manager.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "shared/base/log.h"

namespace stoker::writer {
namespace {

using namespace std::chrono_literals;
// A process that holds a checkpoint open for longer probably hangs.
constexpr auto kBlockedWarningAge = 1h;

}  // namespace

RetentionManager::RetentionManager(const config::Config& config, eval_metrics::MetricTable table,
                                   checkpoint::CheckpointStore& store, const run::RunLayout& layout,
                                   Clock& clock)
    : table_(std::move(table)),
      store_(store),
      layout_(layout),
      clock_(clock),
      rules_(make_rules(config)) {}

RetentionManager::Rules RetentionManager::make_rules(const config::Config& config) const {
  auto required = retention::required_info(config, table_);
  assert(required.ok());
  return {.policy = retention::make_retention_policy(config), .required = *std::move(required)};
}

void RetentionManager::set_policy(const config::Config& config) {
  Rules rules = make_rules(config);
  const std::lock_guard lock(mutex_);
  rules_ = std::move(rules);
}

RetentionManager::Rules RetentionManager::current_rules() const {
  const std::lock_guard lock(mutex_);
  return rules_;
}

void RetentionManager::delete_expired(bool is_disk_full) {
  const auto [policy, required] = current_rules();
  const auto checkpoints = retention::collect_checkpoint_info(store_, layout_, required);
  if (!checkpoints.ok())
    return log_warn("checkpoint cleanup failed", {{"error", checkpoints.status().to_string()}});
  const auto decisions =
      retention::apply_retention(policy, *checkpoints, clock_.wall(), is_disk_full);
  log_incomplete(decisions);
  const auto deleted = store_.delete_checkpoints(retention::steps_to_delete(decisions));
  if (!deleted.ok())
    return log_warn("checkpoint cleanup failed", {{"error", deleted.status().to_string()}});
  for (const uint64_t step : deleted->deleted_steps)
    log_debug("checkpoint deleted", {{"step", step}});
  if (policy.keep_unevaluated > 0)
    log_unevaluated_deletions(*checkpoints, deleted->deleted_steps, is_disk_full);
  log_blocked_deletions(deleted->blocked);
}

void RetentionManager::log_unevaluated_deletions(
    const std::vector<retention::CheckpointInfo>& checkpoints,
    const std::vector<uint64_t>& deleted_steps, bool is_disk_full) {
  for (const retention::CheckpointInfo& checkpoint : checkpoints) {
    if (!checkpoint.is_unevaluated || std::ranges::count(deleted_steps, checkpoint.step) == 0)
      continue;
    log_warn("unevaluated checkpoint deleted",
             {{"step", checkpoint.step},
              {"reason", is_disk_full
                             ? "the disk is full"
                             : "more unevaluated checkpoints than checkpoint.keep_unevaluated"}});
  }
}

void RetentionManager::log_blocked_deletions(
    const std::vector<checkpoint::BlockedDeletion>& blocked) {
  std::erase_if(blocked_since_, [&blocked](const auto& checkpoint) {
    return std::ranges::count(blocked, checkpoint.first, &checkpoint::BlockedDeletion::step) == 0;
  });
  for (const auto& [step, reason] : blocked) {
    const auto since = blocked_since_.try_emplace(step, clock_.monotonic()).first->second;
    const bool is_open = reason.code() == StatusCode::kBusy;
    if (is_open && clock_.monotonic() - since < kBlockedWarningAge) continue;
    if (!logged_.insert(step).second) continue;
    log_warn("checkpoint deletion blocked",
             {{"step", step},
              {"hours", seconds_between(since, clock_.monotonic()) / 3600},
              {"reason", is_open ? "open" : reason.message()}});
  }
}

void RetentionManager::log_incomplete(const std::vector<retention::RetentionDecision>& decisions) {
  for (const retention::RetentionDecision& decision : decisions) {
    if (decision.reason != retention::RetentionReason::kIncomplete ||
        !logged_.insert(decision.step).second)
      continue;
    log_warn("checkpoint incomplete", {{"step", decision.step}});
  }
}

}  // namespace stoker::writer
