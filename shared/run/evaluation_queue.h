// EvaluationQueue: which of the existing checkpoints to evaluate, and in which order, as a pure
// function. The evaluator uses it, and so does retention to protect checkpoints that are waiting
// for an evaluation.
//
// Threads: a function of its arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "shared/config/run_config.h"

namespace stoker::run {

struct SelectionPolicy {
  config::CheckpointSelection selection = config::CheckpointSelection::kLatest;
  config::EvaluationOrder order = config::EvaluationOrder::kOldestFirst;
  uint64_t every_steps = 1;  // for kInterval
};
SelectionPolicy make_selection_policy(const config::EvalConfig& config);

// The evaluation state of a checkpoint.
enum class EvaluationState { kPending, kEvaluated, kFailed };

struct EvaluationQueue {
  std::vector<uint64_t> steps;  // of the existing checkpoints, oldest first
  // State of a step in `steps`; called for as few steps as possible.
  std::function<EvaluationState(uint64_t)> state;
  std::set<uint64_t> evaluated_steps;  // includes steps of deleted checkpoints
  bool run_ended = false;
};

// The steps to evaluate, in order. latest: the newest pending checkpoint, unless a newer one has
// been evaluated; older pending ones are never evaluated. all: every pending checkpoint. interval:
// the first checkpoint that can be evaluated in each interval of `every_steps` steps. Intervals
// start at multiples of `every_steps`, and the first one is not evaluated. After the run has ended,
// interval also includes the newest checkpoint, so that every run has a result.
std::vector<uint64_t> pending_steps(const EvaluationQueue& queue,
                                    const SelectionPolicy& selection_policy);

}  // namespace stoker::run
