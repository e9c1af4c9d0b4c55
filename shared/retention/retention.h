// Retention: which checkpoints are kept, why, and which can be deleted. A pure function, so that
// every rule and every combination of rules can be tested without a disk.
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
  int keep_last = 3;                   // number of newest checkpoints; at least one is always kept
  uint64_t keep_every_steps = 0;       // keep those at multiples; 0 = off
  std::chrono::seconds keep_every{0};  // one per this time, by creation time; 0 = off
  int keep_best = 0;                   // number per score
  uint64_t keep_unevaluated = 0;       // number of newest checkpoints without evaluation
  std::chrono::seconds min_age{0};     // younger checkpoints are not deleted
};

// The facts about one checkpoint that retention uses.
struct CheckpointInfo {
  uint64_t step = 0;
  bool is_complete = true;  // all files exist with the size listed in the manifest
  // A complete read found a checksum mismatch.
  bool is_corrupt = false;
  bool is_finite = true;        // no nonfinite value is known in it
  bool is_unevaluated = false;  // pending, and the evaluator is going to evaluate it
  bool is_named_best = false;   // the evaluator's best checkpoint
  std::optional<WallTime> maybe_created;
  // The evaluator's values of the monitored metrics, as scores where lower is better; NaN if not
  // evaluated. The same number in each checkpoint.
  std::vector<double> scores;
};

// The first reason that applies, in this order.
enum class RetentionReason {
  kIncomplete,      // not managed by retention and not counted by any rule
  kNewest,          // the newest valid one
  kKeepLast,        // among keep_last
  kCorrupt,         // kept for diagnosis while it is newer than the oldest of keep_last
  kLastFinite,      // the newest one that is known to be finite
  kKeepEverySteps,  // at a multiple of keep_every_steps
  kKeepEveryHours,  // the first in its keep_every interval
  kBest,            // among keep_best, or the evaluator's best
  kUnevaluated,     // among keep_unevaluated
  kMinAge,          // younger than min_age
  kDelete,          // can be deleted
};
std::string_view to_string(RetentionReason reason);  // "newest", "keep_last", …

struct RetentionDecision {
  uint64_t step = 0;
  RetentionReason reason = RetentionReason::kDelete;

  bool operator==(const RetentionDecision&) const = default;
};

// One decision for each of `checkpoints`, which are in step order. `is_disk_full`: there is no room
// for the next checkpoint; a pending evaluation or min_age then protects none.
//
// Invariants for any input: the newest complete checkpoint that is not known to be corrupt is kept,
// and so is the newest finite one among these. If there is no such checkpoint, nothing is deleted.
// Applying retention again to the kept checkpoints keeps all of them, unless time or facts have
// changed.
std::vector<RetentionDecision> apply_retention(const RetentionPolicy& policy,
                                               std::span<const CheckpointInfo> checkpoints,
                                               WallTime now, bool is_disk_full);

std::vector<uint64_t> steps_to_delete(std::span<const RetentionDecision> decisions);

// ---- Inputs from a run: its configuration, and the facts about each checkpoint in its directory
// (manifest, evaluation results, outcomes and best checkpoint)

struct RequiredInfo {
  std::vector<run::Monitor> monitors;  // one score each
  run::SelectionPolicy selection;      // determines which checkpoints are pending
};

RetentionPolicy make_retention_policy(const config::Config& config);
// kInvalidArgument: a monitor is not in the table of the run.
Result<RequiredInfo> required_info(const config::Config& config,
                                   const eval_metrics::MetricTable& table);

// In step order. kIoError, kPermission: the checkpoints cannot be listed or the outcomes cannot be
// read. Facts about one checkpoint that cannot be read are treated as unknown, which never causes
// an earlier deletion.
Result<std::vector<CheckpointInfo>> collect_checkpoint_info(
    const checkpoint::CheckpointStore& store, const run::RunLayout& layout,
    const RequiredInfo& required);

}  // namespace stoker::retention
