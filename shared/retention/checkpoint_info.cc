#include "shared/retention/checkpoint_info.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/clock.h"
#include "shared/checkpoint/quick_check.h"
#include "shared/run/eval_result.h"
#include "shared/run/evaluation_outcomes.h"

namespace stoker::retention {
namespace {

// Steps in a row up to this one whose loss or gradient was not finite (on_nonfinite: skip_step): the
// parameters may be spoiled for good.
bool is_finite(const checkpoint::Manifest& manifest) {
  boost::system::error_code error;
  const boost::json::value live = boost::json::parse(manifest.live_settings, error);
  if (error || !live.is_object()) return true;
  const auto* consecutive = live.as_object().if_contains("consecutive_nonfinite");
  return consecutive == nullptr || !consecutive->is_number() ||
         consecutive->to_number<double>(error) <= 0;
}

// Lower is better; NaN where this very checkpoint has no such number.
std::vector<double> compute_scores(const run::RunLayout& layout, uint64_t step,
                                   const std::string& manifest_sha256,
                                   const std::vector<run::Monitor>& monitors) {
  std::vector<double> scores(monitors.size(), std::nan(""));
  if (monitors.empty()) return scores;
  const auto result = run::find_eval_result(layout.eval_dir(), step, manifest_sha256);
  if (!result) return scores;
  for (size_t i = 0; i < monitors.size(); ++i) {
    const auto value = run::monitored_value(*result, monitors[i]);
    if (value.ok()) scores[i] = monitors[i].higher_is_better() ? -*value : *value;
  }
  return scores;
}

// Those that the evaluator is going to look at, by its own rule.
void mark_unevaluated(std::vector<CheckpointInfo>& checkpoints,
                      const std::map<uint64_t, run::EvaluationState>& states,
                      std::set<uint64_t> evaluated_steps, const run::SelectionPolicy& policy) {
  run::EvaluationQueue queue{.evaluated_steps = std::move(evaluated_steps)};
  for (const auto& [step, state] : states) queue.steps.push_back(step);
  queue.state = [&](uint64_t step) { return states.at(step); };
  const auto due = run::pending_steps(queue, policy);
  for (CheckpointInfo& each : checkpoints)
    each.is_unevaluated = std::ranges::find(due, each.step) != due.end();
}

std::chrono::seconds parse_seconds(double seconds) {
  return std::chrono::seconds(static_cast<int64_t>(seconds));
}

}  // namespace

RetentionPolicy make_retention_policy(const config::Config& config) {
  const config::CheckpointConfig& settings = config.checkpoint;
  return {.keep_last = settings.keep_last,
          .keep_every_steps = settings.keep_every_steps.value_or(0),
          .keep_every = parse_seconds(settings.keep_every_hours.value_or(0) * 3600),
          .keep_best = settings.save_top_k,
          .keep_unevaluated = settings.keep_unevaluated,
          .min_age = parse_seconds(settings.min_age_seconds)};
}

RequiredInfo required_info(const config::Config& config) {
  RequiredInfo required{.monitors = {}, .selection = run::make_selection_policy(config.eval)};
  if (config.checkpoint.save_top_k == 0) return required;
  for (const std::string& metric : config.checkpoint.monitor)
    required.monitors.push_back(run::make_monitor(config.eval, metric));
  if (required.monitors.empty()) required.monitors.push_back(run::make_monitor(config.eval));
  return required;
}

Result<std::vector<CheckpointInfo>> collect_checkpoint_info(
    const checkpoint::CheckpointStore& store, const run::RunLayout& layout,
    const RequiredInfo& required) {
  STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
  STOKER_ASSIGN_OR_RETURN(const run::EvaluationOutcomes settled,
                          run::read_evaluation_outcomes(layout.evaluation_outcomes_file()));
  const auto best = run::read_best(layout.best_file());
  std::vector<CheckpointInfo> checkpoints;
  std::map<uint64_t, run::EvaluationState> states;  // of those that are whole
  for (const checkpoint::CheckpointEntry& entry : entries) {
    CheckpointInfo& each = checkpoints.emplace_back(CheckpointInfo{.step = entry.step});
    each.scores.assign(required.monitors.size(), std::nan(""));
    const auto check = checkpoint::quick_check(entry.path);
    each.is_complete = check.ok();
    if (!check.ok()) continue;
    const std::string& manifest = check->manifest_sha256;
    each.is_corrupt = settled.is_corrupt(entry.step, manifest);
    each.is_finite = is_finite(check->manifest);
    states[entry.step] = settled.state(entry.step, manifest);
    each.is_named_best = best.ok() && best->step == entry.step && best->manifest_sha256 == manifest;
    each.maybe_created = parse_iso8601(check->manifest.created);
    each.scores = compute_scores(layout, entry.step, manifest, required.monitors);
  }
  mark_unevaluated(checkpoints, states, settled.evaluated_steps(), required.selection);
  return checkpoints;
}

}  // namespace stoker::retention
