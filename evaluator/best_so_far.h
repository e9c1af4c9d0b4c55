// BestSoFar: which checkpoint is the best, by the goal and by every other metric, and how that came
// to be: a fold over all results in the order in which they were found.
//
// Nothing in it depends on when the evaluator was started: the same results give the same best and
// the same history. Of equals the earlier one stays. Where a step was evaluated anew (the run went
// back and did it again) the later result takes the place of the former, whose checkpoint is gone.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shared/run/early_stop.h"
#include "shared/run/eval_result.h"
#include "shared/run/goal.h"

namespace stoker::evaluator {

class BestSoFar {
 public:
  explicit BestSoFar(run::Goal goal) : goal_(std::move(goal)) {}

  // What best.json knows, for results whose rows are lost. Before any add().
  void remember(const run::Best& best);
  void add(uint64_t step, const std::string& manifest_sha256, const std::string& set,
           const run::MetricValues& metrics);

  // Nothing while no result has a finite value of the goal.
  std::optional<run::Best> maybe_best() const;
  // The goal's values up to that of `step`, in the order of their steps.
  std::vector<run::GoalPoint> history(uint64_t step) const;

 private:
  // The values of one metric of one set.
  struct Track {
    std::vector<run::BestPoint> points;  // as they were found; NaN where another took the place
    std::map<uint64_t, size_t> of_step;  // the one that counts
  };
  static void add_point(Track& track, const run::BestPoint& point);
  static std::vector<run::BestPoint> improvements(const Track& track, const run::Goal& goal);

  const run::Goal goal_;
  std::map<std::string, Track> tracks_;  // by "SET/METRIC"
};

}  // namespace stoker::evaluator
