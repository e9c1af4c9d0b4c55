// BestTracker: tracks the best checkpoint by the monitored metric and by every other metric, with
// the history of improvements. It is a fold over all results in the order in which they were
// recorded.
//
// The outcome does not depend on when the evaluator was started: the same results give the same
// best checkpoint and history. Of equal values the earlier one wins. Only results of ancestors of the
// present state are added (run::Lineage). A later result of the same checkpoint takes the place of the
// earlier one, and one of another checkpoint of the same step replaces it.
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

namespace stoker::evaluator {

class BestTracker {
 public:
  // Metrics that `table` does not have are not ranked.
  BestTracker(run::Monitor monitor, eval_metrics::MetricTable table)
      : monitor_(std::move(monitor)), table_(std::move(table)) {}

  // Adds the contents of best.json, in case its records in eval.jsonl are lost. Call before add().
  void restore(const run::BestCheckpoint& best);
  void add(uint64_t step, const std::string& manifest_sha256, const std::string& dataset,
           const run::MetricValues& metrics);

  void clear() { histories_.clear(); }

  // Empty as long as no result has a finite value of the monitored metric.
  std::optional<run::BestCheckpoint> find_best() const;
  // Values of the monitored metric up to `step`, in step order.
  std::vector<run::MonitorValue> history(uint64_t step) const;

 private:
  // The values of one metric of one dataset.
  struct MetricHistory {
    std::vector<run::BestValue> points;  // in recording order; NaN if replaced
    std::map<uint64_t, size_t> by_step;  // index of the current value in `points`
  };
  static void add_point(MetricHistory& track, const run::BestValue& point);
  static std::vector<run::BestValue> improvements(const MetricHistory& track,
                                                  const run::Monitor& monitor);

  const run::Monitor monitor_;
  const eval_metrics::MetricTable table_;
  std::map<std::string, MetricHistory> histories_;  // by "DATASET/METRIC"
};

}  // namespace stoker::evaluator
