// BestTracker: which checkpoint is the best, by the goal and by every other metric, and how that came
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

#include "shared/run/early_stopping.h"
#include "shared/run/eval_result.h"
#include "shared/run/monitor.h"

namespace stoker::evaluator {

class BestTracker {
 public:
  explicit BestTracker(run::Monitor monitor) : monitor_(std::move(monitor)) {}

  // What best.json knows, for results whose rows are lost. Before any add().
  void restore(const run::BestCheckpoint& best);
  void add(uint64_t step, const std::string& manifest_sha256, const std::string& dataset,
           const run::MetricValues& metrics);

  // Nothing while no result has a finite value of the goal.
  std::optional<run::BestCheckpoint> find_best() const;
  // The goal's values up to that of `step`, in the order of their steps.
  std::vector<run::MonitorValue> history(uint64_t step) const;

 private:
  // The values of one metric of one set.
  struct MetricHistory {
    std::vector<run::BestValue> points;  // as they were found; NaN where another took the place
    std::map<uint64_t, size_t> by_step;  // the one that counts
  };
  static void add_point(MetricHistory& track, const run::BestValue& point);
  static std::vector<run::BestValue> improvements(const MetricHistory& track,
                                                  const run::Monitor& monitor);

  const run::Monitor monitor_;
  std::map<std::string, MetricHistory> histories_;  // by "SET/METRIC"
};

}  // namespace stoker::evaluator
