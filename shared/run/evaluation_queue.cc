#include "shared/run/evaluation_queue.h"

#include <algorithm>
#include <map>

namespace stoker::run {
namespace {

using Steps = std::vector<uint64_t>;

Steps latest(const EvaluationQueue& queue) {
  for (auto step = queue.steps.rbegin(); step != queue.steps.rend(); ++step) {
    switch (queue.state(*step)) {
      case EvaluationState::kPending:
        return {*step};
      case EvaluationState::kEvaluated:
        return {};
      case EvaluationState::kFailed:
        break;  // a failed evaluation does not supersede older checkpoints
    }
  }
  return {};
}

Steps pending_ones(const EvaluationQueue& queue) {
  Steps open;
  std::ranges::copy_if(queue.steps, std::back_inserter(open), [&](uint64_t step) {
    return queue.state(step) == EvaluationState::kPending;
  });
  return open;
}

Steps one_of_each(const EvaluationQueue& queue, uint64_t every_steps) {
  const std::set<uint64_t> there(queue.steps.begin(), queue.steps.end());
  std::set<uint64_t> done;  // indexes of the finished intervals
  for (const uint64_t step : queue.evaluated_steps)
    if (!there.contains(step)) done.insert(step / every_steps);
  std::map<uint64_t, uint64_t> first_open;
  for (const uint64_t step : queue.steps) {
    const uint64_t span = step / every_steps;
    const EvaluationState state = queue.state(step);
    if (state == EvaluationState::kEvaluated) done.insert(span);
    // Of the first interval only the state before training is evaluated.
    if (state == EvaluationState::kPending && (span > 0 || step == 0))
      first_open.emplace(span, step);
  }
  Steps due;
  for (const auto& [span, step] : first_open)
    if (!done.contains(span)) due.push_back(step);
  if (!queue.run_ended) return due;
  for (const uint64_t last : latest(queue))
    if (due.empty() || due.back() < last) due.push_back(last);
  return due;
}

}  // namespace

SelectionPolicy make_selection_policy(const config::EvalConfig& config) {
  return {.selection = config.checkpoints,
          .order = config.order,
          .every_steps = std::max<uint64_t>(1, config.every_steps)};
}

Steps pending_steps(const EvaluationQueue& queue, const SelectionPolicy& selection_policy) {
  Steps due;
  switch (selection_policy.selection) {
    case config::CheckpointSelection::kLatest:
      due = latest(queue);
      break;
    case config::CheckpointSelection::kAll:
      due = pending_ones(queue);
      break;
    case config::CheckpointSelection::kInterval:
      due = one_of_each(queue, selection_policy.every_steps);
      break;
  }
  if (selection_policy.order == config::EvaluationOrder::kNewestFirst) std::ranges::reverse(due);
  return due;
}

}  // namespace stoker::run
