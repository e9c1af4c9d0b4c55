// Retention: which checkpoints are kept, why, and which may go: a pure function of what is known of
// each, so that every rule and every mixture of them can be tested without a disk.
//
// Threads: any; values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/run/eval_result.h"
#include "shared/run/evaluation_queue.h"
#include "shared/run/run_layout.h"

namespace stoker::retention {

using WallTime = std::chrono::system_clock::time_point;

struct RetentionPolicy {
  int keep_last = 3;                   // of the newest; one is kept whatever stands here
  uint64_t keep_every_steps = 0;       // those at multiples; 0 = off
  std::chrono::seconds keep_every{0};  // one in so much time, by their own clock; 0 = off
  int keep_best = 0;                   // so many by each score
  uint64_t keep_unevaluated = 0;       // so many that wait for their evaluation, the newest of them
  std::chrono::seconds min_age{0};     // nothing younger goes
};

// What is known of one checkpoint.
struct CheckpointInfo {
  uint64_t step = 0;
  bool is_complete = true;  // all its files are there, in the size that its lists name
  // Somebody who read every byte found damage.
  bool is_corrupt = false;
  bool is_finite = true;        // no number in it is known to have gone wrong
  bool is_unevaluated = false;  // the evaluator has not settled it, and is going to look at it
  bool is_named_best = false;   // by the evaluator
  std::optional<WallTime> maybe_created;
  // What the evaluator measured, by each of the metrics that count, lower is better: NaN where it
  // did not. As many in each.
  std::vector<double> scores;
};

// The first reason that holds, in this order.
enum class RetentionReason {
  kIncomplete,      // num_kept: not ours to judge, and counted by no rule
  kNewest,          // num_kept: the last valid one
  kKeepLast,        // num_kept: among keep_last
  kCorrupt,         // kept as evidence, as long as it is newer than one of keep_last
  kLastFinite,      // num_kept: the last one whose numbers are known to be finite
  kKeepEverySteps,  // num_kept: at a multiple of keep_every_steps
  kKeepEveryHours,  // num_kept: the first in its keep_every
  kBest,            // num_kept: among keep_best, or the evaluator's best
  kUnevaluated,     // num_kept: among keep_unevaluated
  kMinAge,          // num_kept: too young
  kDelete,          // may go
};
std::string_view to_string(RetentionReason reason);  // "newest", "keep_last", …

struct RetentionDecision {
  uint64_t step = 0;
  RetentionReason reason = RetentionReason::kDelete;

  bool operator==(const RetentionDecision&) const = default;
};

// One for each of `checkpoints`, which are in the order of their steps. `is_disk_full`: the disk has no room
// for the next checkpoint; then neither waiting for an evaluation nor youth keeps one.
//
// What holds for any input: the newest that is whole and not known to be damaged is kept, and so is
// the newest of these that is finite; where there is none, nothing goes. Deciding again about what
// was kept keeps the same, unless time or facts have changed.
std::vector<RetentionDecision> apply_retention(const RetentionPolicy& policy,
                                               std::span<const CheckpointInfo> checkpoints,
                                               WallTime now, bool is_disk_full);

std::vector<uint64_t> steps_to_delete(std::span<const RetentionDecision> decisions);

// ---- What it goes by, of a run: its settings, and what its directory says of each checkpoint (manifest,
// the evaluator's results, outcomes and best)

struct RequiredInfo {
  std::vector<run::Monitor> monitors;  // each makes one score
  run::SelectionPolicy selection;      // says which of them wait for an evaluation
};

RetentionPolicy make_retention_policy(const config::Config& config);
RequiredInfo required_info(const config::Config& config);

// In the order of their steps. kIoError, kPermission: the checkpoints cannot be listed, or the outcomes
// not be read. What cannot be read of one checkpoint is not known of it, which never makes it go
// sooner.
Result<std::vector<CheckpointInfo>> collect_checkpoint_info(
    const checkpoint::CheckpointStore& store, const run::RunLayout& layout,
    const RequiredInfo& required);

}  // namespace stoker::retention
