// EvaluationQueue: which of the checkpoints that are there to evaluate, and in which order, as a pure
// function of what is known. The evaluator goes by it, and so does retention where it leaves alone
// what waits for an evaluation.
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
  uint64_t every_steps = 1;  // kInterval
};
SelectionPolicy make_selection_policy(const config::EvalConfig& config);

// What became of a checkpoint so far.
enum class EvaluationState { kPending, kEvaluated, kFailed };

struct EvaluationQueue {
  std::vector<uint64_t> steps;  // of the checkpoints that are there, oldest first
  std::function<EvaluationState(uint64_t)> state;  // of one of these; asked of as few as will do
  std::set<uint64_t> evaluated_steps;              // also of checkpoints that are gone
  bool run_ended = false;
};

// latest: the newest that is open, and none that is older than an evaluated one: those that were
// overtaken are left out for good. all: each that is open. interval: of each `every_steps` steps,
// which begin at a multiple of it, the first checkpoint that can be evaluated; nothing of those
// before the first multiple; and when the run has ended the newest, so that no run ends without a
// result.
std::vector<uint64_t> pending_steps(const EvaluationQueue& queue,
                                    const SelectionPolicy& selection_policy);

}  // namespace stoker::run
