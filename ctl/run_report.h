// RunHistory: what a run has measured so far, read from its directory, and the report of it for
// people: a table, a few lines of sums, and a plot of the losses.
//
// Threads: values; functions of their arguments.
// Errors:  kNotFound: no step was reported yet. kCorrupt: names file and line; or no loss is a
//          number, so that there is nothing to plot. kIoError, kPermission.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ctl/plot.h"
#include "ctl/terminal.h"
#include "shared/base/status.h"
#include "shared/metrics/metrics_record.h"
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

// About ten reported steps, evenly chosen, and the last; then the best validation, samples and
// time, and a small plot. Speeds and waits are over all steps since the row above, and so is the
// validation: the newest of them.
Result<std::string> render_report(const RunHistory& history, const TextStyle& style);

// Training loss, and the validation metric that "best" goes by, over the steps. At least one point is
// finite.
Result<std::vector<Curve>> loss_curves(const RunHistory& history);
// One metric of every set that has it. kNotFound: none has; names those that there are.
Result<std::vector<Curve>> metric_curves(const RunHistory& history, const std::string& metric);

}  // namespace stoker::ctl
