// RunHistory: what a run has measured so far, read from its directory.
//
// Threads: values.
// Errors:  kCorrupt: names file and line. kIoError, kPermission.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/metrics/train_metrics.h"
#include "shared/run/eval_result.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"

namespace stoker::ctl {

// A metric of a set, such as valid loss.
struct MetricName {
  std::string dataset;
  std::string metric;

  std::string text() const;  // "valid loss"
};

struct RunHistory {
  run::RunLayout layout;
  run::RunState state;
  std::vector<metrics::TrainMetrics> train;  // in the order of their steps; may be empty
  std::vector<run::EvalResult> evals;        // in the order of their steps; may be empty
};

Result<RunHistory> read_history(const run::RunLayout& layout);
// In the order of their steps; empty where nothing was evaluated.
Result<std::vector<run::EvalResult>> read_evals(const run::RunLayout& layout);

// The metrics of the first set that the evaluator reports, in its order: the first is what "best"
// goes by. Empty before the first evaluation.
std::vector<MetricName> reported_metrics(const std::vector<run::EvalResult>& evals);
std::optional<double> find_value(const run::EvalResult& eval, const MetricName& metric);
// The least number among them, of the earliest step that reached it; nullptr: there is none.
const run::EvalResult* find_best(const std::vector<run::EvalResult>& evals,
                                 const MetricName& metric);

}  // namespace stoker::ctl
