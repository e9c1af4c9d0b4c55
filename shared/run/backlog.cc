#include "shared/run/backlog.h"

#include <algorithm>
#include <map>

namespace stoker::run {
namespace {

using Steps = std::vector<uint64_t>;

Steps latest(const Backlog& backlog) {
  for (auto step = backlog.steps.rbegin(); step != backlog.steps.rend(); ++step) {
    switch (backlog.fate(*step)) {
      case Fate::kOpen:
        return {*step};
      case Fate::kEvaluated:
        return {};
      case Fate::kGivenUp:
        break;  // a damaged one does not stand for those before it
    }
  }
  return {};
}

Steps open_ones(const Backlog& backlog) {
  Steps open;
  std::ranges::copy_if(backlog.steps, std::back_inserter(open),
                       [&](uint64_t step) { return backlog.fate(step) == Fate::kOpen; });
  return open;
}

Steps one_of_each(const Backlog& backlog, uint64_t every_steps) {
  const std::set<uint64_t> there(backlog.steps.begin(), backlog.steps.end());
  std::set<uint64_t> done;  // the numbers of the spans
  for (const uint64_t step : backlog.evaluated_steps)
    if (!there.contains(step)) done.insert(step / every_steps);
  std::map<uint64_t, uint64_t> first_open;
  for (const uint64_t step : backlog.steps) {
    const uint64_t span = step / every_steps;
    const Fate fate = backlog.fate(step);
    if (fate == Fate::kEvaluated) done.insert(span);
    if (fate == Fate::kOpen && span > 0) first_open.emplace(span, step);
  }
  Steps due;
  for (const auto& [span, step] : first_open)
    if (!done.contains(span)) due.push_back(step);
  if (!backlog.run_ended) return due;
  for (const uint64_t last : latest(backlog))
    if (due.empty() || due.back() < last) due.push_back(last);
  return due;
}

}  // namespace

BacklogRule backlog_rule(const config::EvalConfig& config) {
  return {.policy = config.checkpoints,
          .order = config.order,
          .every_steps = std::max<uint64_t>(1, config.every_steps)};
}

Steps due_steps(const Backlog& backlog, const BacklogRule& rule) {
  Steps due;
  switch (rule.policy) {
    case config::CheckpointSelection::kLatest:
      due = latest(backlog);
      break;
    case config::CheckpointSelection::kAll:
      due = open_ones(backlog);
      break;
    case config::CheckpointSelection::kInterval:
      due = one_of_each(backlog, rule.every_steps);
      break;
  }
  if (rule.order == config::EvaluationOrder::kNewestFirst) std::ranges::reverse(due);
  return due;
}

}  // namespace stoker::run
