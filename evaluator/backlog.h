// Backlog: which of the checkpoints that are there to evaluate, and in which order, as a pure
// function of what is known.
//
// Threads: a function of its arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "shared/checkpoint/store.h"
#include "shared/config/eval_config.h"

namespace stoker::evaluator {

enum class Policy { kLatest, kAll, kEvery };
enum class Order { kOldestFirst, kNewestFirst };

struct BacklogRule {
  Policy policy = Policy::kLatest;
  Order order = Order::kOldestFirst;
  uint64_t every_steps = 1;  // kEvery
};
BacklogRule backlog_rule(const config::EvalConfig& config);

// What became of a checkpoint so far.
enum class Fate { kOpen, kEvaluated, kGivenUp };

struct Backlog {
  std::vector<checkpoint::CheckpointEntry> entries;  // that are there, oldest first
  std::function<Fate(const checkpoint::CheckpointEntry&)> fate;
  std::set<uint64_t> evaluated_steps;  // also of checkpoints that are gone
  bool run_ended = false;
};

// latest: the newest that is open, and none that is older than an evaluated one: those that were
// overtaken are left out for good. all: each that is open. every: of each `every_steps` steps,
// which begin at a multiple of it, the first checkpoint that can be evaluated; nothing of those
// before the first multiple; and when the run has ended the newest, so that no run ends without a
// result.
std::vector<checkpoint::CheckpointEntry> due_checkpoints(const Backlog& backlog,
                                                         const BacklogRule& rule);

}  // namespace stoker::evaluator
