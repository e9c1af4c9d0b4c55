#include "shared/retention/retention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/clock.h"
#include "shared/checkpoint/verify.h"
#include "shared/run/evaluation_outcomes.h"
#include "shared/run/evaluation_requests.h"
#include "shared/run/lineage.h"

namespace stoker::retention {
namespace {

// False if the last steps before the checkpoint had a nonfinite loss, gradient or buffer (on_nonfinite:
// skip_step); the parameters can be permanently corrupted.
bool is_finite(const checkpoint::Manifest& manifest) {
  boost::system::error_code error;
  const boost::json::value live = boost::json::parse(manifest.live_settings, error);
  if (error || !live.is_object()) return true;
  const auto* consecutive = live.as_object().if_contains("consecutive_nonfinite");
  return consecutive == nullptr || !consecutive->is_number() ||
         consecutive->to_number<double>(error) <= 0;
}

// Lower is better; not finite if this checkpoint has no such value.
std::vector<double> compute_scores(const run::RunLayout& layout, uint64_t step,
                                   const std::string& manifest_sha256,
                                   const std::vector<run::Monitor>& monitors) {
  std::vector<double> scores(monitors.size(), std::nan(""));
  if (monitors.empty()) return scores;
  const auto result = run::find_eval_result(layout.eval_dir(), step, manifest_sha256);
  if (!result) return scores;
  for (size_t i = 0; i < monitors.size(); ++i) {
    const auto value = run::monitored_value(*result, monitors[i]);
    if (value.ok()) scores[i] = monitors[i].score(*value);
  }
  return scores;
}

// Marks the checkpoints that the evaluator is going to evaluate, by the evaluator's own rule or on
// request.
void mark_unevaluated(std::vector<CheckpointInfo>& checkpoints,
                      const std::map<uint64_t, run::EvaluationState>& states,
                      std::set<uint64_t> evaluated_steps, const run::SelectionPolicy& policy,
                      const std::vector<run::EvaluationRequest>& requests) {
  run::EvaluationQueue queue{.evaluated_steps = std::move(evaluated_steps)};
  for (const auto& [step, state] : states) queue.steps.push_back(step);
  queue.state = [&](uint64_t step) { return states.at(step); };
  const auto pending = run::pending_steps(queue, policy);
  for (CheckpointInfo& info : checkpoints)
    info.is_unevaluated =
        std::ranges::find(pending, info.step) != pending.end() ||
        std::ranges::find(requests, info.step, &run::EvaluationRequest::step) != requests.end();
}

std::chrono::seconds to_seconds(double seconds) {
  return std::chrono::seconds(static_cast<int64_t>(seconds));
}

}  // namespace

RetentionPolicy make_retention_policy(const config::Config& config) {
  const config::CheckpointConfig& settings = config.checkpoint;
  return {.keep_last = settings.keep_last,
          .keep_every_steps = settings.keep_every_steps.value_or(0),
          .keep_every = to_seconds(settings.keep_every_hours.value_or(0) * 3600),
          .keep_best = settings.save_top_k,
          .keep_unevaluated = settings.keep_unevaluated,
          .min_age = to_seconds(settings.min_age_seconds)};
}

Result<RequiredInfo> required_info(const config::Config& config,
                                   const eval_metrics::MetricTable& table) {
  RequiredInfo required{.monitors = {}, .selection = run::make_selection_policy(config.eval)};
  if (config.checkpoint.save_top_k == 0) return required;
  for (const std::string& metric : config.checkpoint.monitor) {
    STOKER_ASSIGN_OR_RETURN(run::Monitor monitor,
                            run::make_monitor(config.eval, table, "checkpoint.monitor", metric));
    required.monitors.push_back(std::move(monitor));
  }
  if (!required.monitors.empty()) return required;
  STOKER_ASSIGN_OR_RETURN(run::Monitor monitor, run::make_monitor(config.eval, table));
  required.monitors.push_back(std::move(monitor));
  return required;
}

Result<std::vector<CheckpointInfo>> collect_checkpoint_info(
    const checkpoint::CheckpointStore& store, const run::RunLayout& layout,
    const RequiredInfo& required) {
  STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
  STOKER_ASSIGN_OR_RETURN(const run::EvaluationOutcomes outcomes,
                          run::read_evaluation_outcomes(layout.evaluation_outcomes_file()));
  STOKER_ASSIGN_OR_RETURN(const run::Lineage lineage, run::read_lineage(layout.lineage_file()));
  const auto best = run::read_best(layout);
  std::vector<CheckpointInfo> checkpoints;
  std::map<uint64_t, run::EvaluationState> states;  // of the complete checkpoints
  for (const checkpoint::CheckpointEntry& entry : entries) {
    CheckpointInfo& info = checkpoints.emplace_back(CheckpointInfo{.step = entry.step});
    info.scores.assign(required.monitors.size(), std::nan(""));
    const auto check = checkpoint::quick_check(entry.path);
    info.is_complete = check.ok();
    if (!check.ok()) continue;
    const std::string& manifest = check->manifest_sha256;
    info.is_corrupt = outcomes.is_corrupt(entry.step, manifest);
    info.is_finite = is_finite(check->manifest);
    states[entry.step] = outcomes.state(entry.step, manifest);
    info.is_named_best = best.ok() && best->step == entry.step && best->manifest_sha256 == manifest;
    info.maybe_created = parse_iso8601(check->manifest.created_at);
    info.scores = compute_scores(layout, entry.step, manifest, required.monitors);
  }
  const auto requests = run::read_evaluation_requests(layout);
  mark_unevaluated(checkpoints, states, outcomes.evaluated_steps(lineage), required.selection,
                   requests.ok() ? requests->pending : std::vector<run::EvaluationRequest>());
  return checkpoints;
}

namespace {

using namespace std::string_view_literals;

constexpr auto kReasonNames = std::to_array(
    {"incomplete"sv, "newest"sv, "keep_last"sv, "corrupt"sv, "last_finite"sv, "keep_every_steps"sv,
     "keep_every_hours"sv, "best"sv, "unevaluated"sv, "min_age"sv, "delete"sv});

// True if the times differ by less than `span`. The order does not matter because the clock might
// have been set back.
bool differ_by_less_than(WallTime one, WallTime other, std::chrono::seconds span) {
  return (one > other ? one - other : other - one) < span;
}

class RetentionEvaluator {
 public:
  RetentionEvaluator(const RetentionPolicy& policy, std::span<const CheckpointInfo> checkpoints)
      : policy_(policy), checkpoints_(checkpoints) {
    for (const CheckpointInfo& info : checkpoints) {
      decisions_.push_back({info.step, RetentionReason::kDelete});
      if (!info.is_complete) decisions_.back().reason = RetentionReason::kIncomplete;
    }
    for (size_t i = 0; i < checkpoints.size(); ++i)
      if (checkpoints[i].is_complete && !checkpoints[i].is_corrupt) valid_.push_back(i);
  }

  std::vector<RetentionDecision> take_decisions() { return std::move(decisions_); }
  bool has_valid() const { return !valid_.empty(); }

  void keep_corrupt() {
    for (size_t i = 0; i < checkpoints_.size(); ++i)
      if (checkpoints_[i].is_complete) keep(i, RetentionReason::kCorrupt);
  }

  void keep_newest() { keep(valid_.back(), RetentionReason::kNewest); }

  void keep_last() {
    const auto count = std::min(static_cast<size_t>(std::max(policy_.keep_last, 1)), valid_.size());
    const size_t oldest = valid_[valid_.size() - count];
    for (size_t i = oldest; i < checkpoints_.size(); ++i)
      keep(i, checkpoints_[i].is_corrupt ? RetentionReason::kCorrupt : RetentionReason::kKeepLast);
  }

  void keep_finite() {
    const auto last = std::find_if(valid_.rbegin(), valid_.rend(),
                                   [this](size_t i) { return checkpoints_[i].is_finite; });
    if (last != valid_.rend()) keep(*last, RetentionReason::kLastFinite);
  }

  void keep_every_n_steps() {
    if (policy_.keep_every_steps == 0) return;
    for (const size_t i : valid_)
      if (checkpoints_[i].step % policy_.keep_every_steps == 0)
        keep(i, RetentionReason::kKeepEverySteps);
  }

  // From the oldest on, keeps each checkpoint that is far enough from the previous one kept by this
  // rule. The checkpoints in between do not matter, so applying the rule again keeps the same ones.
  void keep_every_n_hours() {
    if (policy_.keep_every <= std::chrono::seconds(0)) return;
    std::optional<WallTime> maybe_last_kept;
    for (const size_t i : valid_) {
      const auto created = checkpoints_[i].maybe_created;
      if (!created ||
          (maybe_last_kept && differ_by_less_than(*created, *maybe_last_kept, policy_.keep_every)))
        continue;
      keep(i, RetentionReason::kKeepEveryHours);
      maybe_last_kept = created;
    }
  }

  void keep_best() {
    if (policy_.keep_best <= 0) return;
    for (const size_t i : valid_)
      if (checkpoints_[i].is_named_best) keep(i, RetentionReason::kBest);
    for (size_t score = 0; score < checkpoints_[valid_.front()].scores.size(); ++score)
      keep_best_by(score);
  }

  void keep_unevaluated() {
    uint64_t num_kept = 0;
    for (auto i = valid_.rbegin(); i != valid_.rend() && num_kept < policy_.keep_unevaluated; ++i) {
      if (!checkpoints_[*i].is_unevaluated) continue;
      keep(*i, RetentionReason::kUnevaluated);
      ++num_kept;
    }
  }

  void keep_recent(WallTime now) {
    if (policy_.min_age <= std::chrono::seconds(0)) return;
    for (const size_t i : valid_)
      if (checkpoints_[i].maybe_created &&
          differ_by_less_than(now, *checkpoints_[i].maybe_created, policy_.min_age))
        keep(i, RetentionReason::kMinAge);
  }

 private:
  void keep(size_t i, RetentionReason why) {
    if (decisions_[i].reason == RetentionReason::kDelete) decisions_[i].reason = why;
  }

  // Of equal scores the earlier checkpoint wins, as in the evaluator: an equal value is no
  // improvement.
  void keep_best_by(size_t score) {
    std::vector<size_t> ranked;
    for (const size_t i : valid_)
      if (std::isfinite(checkpoints_[i].scores[score])) ranked.push_back(i);
    std::ranges::stable_sort(ranked, {}, [&](size_t i) { return checkpoints_[i].scores[score]; });
    ranked.resize(std::min(ranked.size(), static_cast<size_t>(policy_.keep_best)));
    for (const size_t i : ranked) keep(i, RetentionReason::kBest);
  }

  const RetentionPolicy& policy_;
  const std::span<const CheckpointInfo> checkpoints_;
  std::vector<size_t> valid_;  // complete and not known to be corrupt
  std::vector<RetentionDecision> decisions_;
};

}  // namespace

std::string_view to_string(RetentionReason reason) {
  return kReasonNames[static_cast<size_t>(reason)];
}

std::vector<RetentionDecision> apply_retention(const RetentionPolicy& policy,
                                               std::span<const CheckpointInfo> checkpoints,
                                               WallTime now, bool is_disk_full) {
  RetentionEvaluator evaluator(policy, checkpoints);
  if (!evaluator.has_valid()) {
    evaluator.keep_corrupt();
    return evaluator.take_decisions();
  }
  evaluator.keep_newest();
  evaluator.keep_last();
  evaluator.keep_finite();
  evaluator.keep_every_n_steps();
  evaluator.keep_every_n_hours();
  evaluator.keep_best();
  if (!is_disk_full) {
    evaluator.keep_unevaluated();
    evaluator.keep_recent(now);
  }
  return evaluator.take_decisions();
}

std::vector<uint64_t> steps_to_delete(std::span<const RetentionDecision> decisions) {
  std::vector<uint64_t> steps;
  for (const RetentionDecision& decision : decisions)
    if (decision.reason == RetentionReason::kDelete) steps.push_back(decision.step);
  return steps;
}

}  // namespace stoker::retention
