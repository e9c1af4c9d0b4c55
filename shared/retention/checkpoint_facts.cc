#include "shared/retention/checkpoint_facts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/clock.h"
#include "shared/checkpoint/glance.h"
#include "shared/run/eval_result.h"
#include "shared/run/settled.h"

namespace stoker::retention {
namespace {

// Steps in a row up to this one whose loss or gradient was not finite (on_nonfinite: skip_step): the
// parameters may be spoiled for good.
bool is_finite(const checkpoint::Manifest& manifest) {
  boost::system::error_code error;
  const boost::json::value live = boost::json::parse(manifest.live, error);
  if (error || !live.is_object()) return true;
  const auto* in_a_row = live.as_object().if_contains("consecutive_nonfinite");
  return in_a_row == nullptr || !in_a_row->is_number() || in_a_row->to_number<double>(error) <= 0;
}

// Lower is better; NaN where this very checkpoint has no such number.
std::vector<double> scores_of(const run::RunLayout& layout, uint64_t step,
                              const std::string& manifest_sha256,
                              const std::vector<run::Goal>& goals) {
  std::vector<double> scores(goals.size(), std::nan(""));
  if (goals.empty()) return scores;
  const auto result = run::maybe_eval_result(layout.eval(), step, manifest_sha256);
  if (!result) return scores;
  for (size_t i = 0; i < goals.size(); ++i) {
    const auto value = run::value_of(*result, goals[i]);
    if (value.ok()) scores[i] = goals[i].higher_is_better() ? -*value : *value;
  }
  return scores;
}

// Those that the evaluator is going to look at, by its own rule.
void mark_pending(std::vector<CheckpointFacts>& facts, const std::map<uint64_t, run::Fate>& fates,
                  std::set<uint64_t> evaluated_steps, const run::BacklogRule& rule) {
  run::Backlog backlog{.evaluated_steps = std::move(evaluated_steps)};
  for (const auto& [step, fate] : fates) backlog.steps.push_back(step);
  backlog.fate = [&](uint64_t step) { return fates.at(step); };
  const auto due = run::due_steps(backlog, rule);
  for (CheckpointFacts& each : facts)
    each.is_pending = std::ranges::find(due, each.step) != due.end();
}

std::chrono::seconds seconds_of(double seconds) {
  return std::chrono::seconds(static_cast<int64_t>(seconds));
}

}  // namespace

RetentionRule rule_of(const config::Config& config) {
  const config::CheckpointConfig& settings = config.checkpoint;
  return {.keep_last = settings.keep_last,
          .keep_every_steps = settings.keep_every_steps.value_or(0),
          .keep_every = seconds_of(settings.keep_every_hours.value_or(0) * 3600),
          .keep_best = settings.save_top_k,
          .keep_pending = settings.keep_unevaluated,
          .grace = seconds_of(settings.min_age_seconds)};
}

FactsWanted facts_wanted(const config::Config& config) {
  FactsWanted wanted{.goals = {}, .backlog = run::backlog_rule(config.eval)};
  if (config.checkpoint.save_top_k == 0) return wanted;
  for (const std::string& metric : config.checkpoint.monitor)
    wanted.goals.push_back(run::goal_of(config.eval, metric));
  if (wanted.goals.empty()) wanted.goals.push_back(run::goal_of(config.eval));
  return wanted;
}

Result<std::vector<CheckpointFacts>> gather_facts(const checkpoint::CheckpointStore& store,
                                                  const run::RunLayout& layout,
                                                  const FactsWanted& wanted) {
  STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
  STOKER_ASSIGN_OR_RETURN(const run::Settled settled, run::read_settled(layout.ledger_file()));
  const auto best = run::read_best(layout.best_file());
  std::vector<CheckpointFacts> facts;
  std::map<uint64_t, run::Fate> fates;  // of those that are whole
  for (const checkpoint::CheckpointEntry& entry : entries) {
    CheckpointFacts& each = facts.emplace_back(CheckpointFacts{.step = entry.step});
    each.scores.assign(wanted.goals.size(), std::nan(""));
    const auto glance = checkpoint::glance_at(entry.path);
    each.is_whole = glance.ok();
    if (!glance.ok()) continue;
    const std::string& manifest = glance->manifest_sha256;
    each.is_corrupt = settled.is_corrupt(entry.step, manifest);
    each.is_finite = is_finite(glance->manifest);
    fates[entry.step] = settled.fate(entry.step, manifest);
    each.is_named_best = best.ok() && best->step == entry.step && best->manifest_sha256 == manifest;
    each.maybe_created = maybe_from_iso8601(glance->manifest.created);
    each.scores = scores_of(layout, entry.step, manifest, wanted.goals);
  }
  mark_pending(facts, fates, settled.evaluated_steps(), wanted.backlog);
  return facts;
}

}  // namespace stoker::retention
