#include "evaluator/backlog.h"

#include <algorithm>
#include <map>

namespace stoker::evaluator {
namespace {

using Entries = std::vector<checkpoint::CheckpointEntry>;

Entries latest(const Backlog& backlog) {
  for (auto entry = backlog.entries.rbegin(); entry != backlog.entries.rend(); ++entry) {
    switch (backlog.fate(*entry)) {
      case Fate::kOpen:
        return {*entry};
      case Fate::kEvaluated:
        return {};
      case Fate::kGivenUp:
        break;  // a damaged one does not stand for those before it
    }
  }
  return {};
}

Entries open_ones(const Backlog& backlog) {
  Entries open;
  std::ranges::copy_if(backlog.entries, std::back_inserter(open),
                       [&](const auto& entry) { return backlog.fate(entry) == Fate::kOpen; });
  return open;
}

Entries one_of_each(const Backlog& backlog, uint64_t every_steps) {
  std::set<uint64_t> there;
  for (const auto& entry : backlog.entries) there.insert(entry.step);
  std::set<uint64_t> done;  // the numbers of the spans
  for (const uint64_t step : backlog.evaluated_steps)
    if (!there.contains(step)) done.insert(step / every_steps);
  std::map<uint64_t, checkpoint::CheckpointEntry> first_open;
  for (const auto& entry : backlog.entries) {
    const uint64_t span = entry.step / every_steps;
    const Fate fate = backlog.fate(entry);
    if (fate == Fate::kEvaluated) done.insert(span);
    if (fate == Fate::kOpen && span > 0) first_open.emplace(span, entry);
  }
  Entries due;
  for (const auto& [span, entry] : first_open)
    if (!done.contains(span)) due.push_back(entry);
  if (!backlog.run_ended) return due;
  for (const auto& last : latest(backlog))
    if (due.empty() || due.back().step < last.step) due.push_back(last);
  return due;
}

}  // namespace

BacklogRule backlog_rule(const config::EvalConfig& config) {
  BacklogRule rule;
  if (config.policy == "all") rule.policy = Policy::kAll;
  if (config.policy == "every") rule.policy = Policy::kEvery;
  if (config.order == "newest") rule.order = Order::kNewestFirst;
  rule.every_steps = std::max<uint64_t>(1, config.every_steps);
  return rule;
}

Entries due_checkpoints(const Backlog& backlog, const BacklogRule& rule) {
  Entries due;
  switch (rule.policy) {
    case Policy::kLatest:
      due = latest(backlog);
      break;
    case Policy::kAll:
      due = open_ones(backlog);
      break;
    case Policy::kEvery:
      due = one_of_each(backlog, rule.every_steps);
      break;
  }
  if (rule.order == Order::kNewestFirst) std::ranges::reverse(due);
  return due;
}

}  // namespace stoker::evaluator
