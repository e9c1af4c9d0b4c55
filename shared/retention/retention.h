// Retention: which checkpoints are kept, why, and which may go: a pure function of what is known of
// each, so that every rule and every mixture of them can be tested without a disk.
//
// Threads: values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace stoker::retention {

using WallTime = std::chrono::system_clock::time_point;

struct RetentionRule {
  int keep_last = 3;                   // of the newest; one is kept whatever stands here
  uint64_t keep_every_steps = 0;       // those at multiples; 0 = off
  std::chrono::seconds keep_every{0};  // one in so much time, by their own clock; 0 = off
  int keep_best = 0;                   // so many by each score
  uint64_t keep_pending = 0;           // so many that wait for their evaluation, the newest of them
  std::chrono::seconds grace{0};       // nothing younger goes
};

// What is known of one checkpoint.
struct CheckpointFacts {
  uint64_t step = 0;
  bool is_whole = true;  // all its files are there, in the size that its lists name
  // Somebody who read every byte found damage.
  bool is_corrupt = false;
  bool is_finite = true;       // no number in it is known to have gone wrong
  bool is_pending = false;     // the evaluator has not settled it, and is going to look at it
  bool is_named_best = false;  // by the evaluator
  std::optional<WallTime> maybe_created;
  // What the evaluator measured, by each of the metrics that count, lower is better: NaN where it
  // did not. As many in each.
  std::vector<double> scores;
};

// The first reason that holds, in this order.
enum class Verdict {
  kNotWhole,   // kept: not ours to judge, and counted by no rule
  kNewest,     // kept: the last valid one
  kLast,       // kept: among keep_last
  kDamaged,    // kept as evidence, as long as it is newer than one of keep_last
  kFinite,     // kept: the last one whose numbers are known to be finite
  kMilestone,  // kept: at a multiple of keep_every_steps
  kPeriod,     // kept: the first in its keep_every
  kBest,       // kept: among keep_best, or the evaluator's best
  kPending,    // kept: among keep_pending
  kGrace,      // kept: too young
  kRetire,     // may go
};
std::string_view verdict_name(Verdict verdict);  // "newest", "keep_last", …

struct Decision {
  uint64_t step = 0;
  Verdict verdict = Verdict::kRetire;

  bool operator==(const Decision&) const = default;
};

// One for each of `facts`, which are in the order of their steps. `is_short`: the disk has no room
// for the next checkpoint; then neither waiting for an evaluation nor youth keeps one.
//
// What holds for any input: the newest that is whole and not known to be damaged is kept, and so is
// the newest of these that is finite; where there is none, nothing goes. Deciding again about what
// was kept keeps the same, unless time or facts have changed.
std::vector<Decision> decide(const RetentionRule& rule, std::span<const CheckpointFacts> facts,
                             WallTime now, bool is_short);

std::vector<uint64_t> retired_of(std::span<const Decision> decisions);

}  // namespace stoker::retention
