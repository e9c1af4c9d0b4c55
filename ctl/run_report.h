// RunHistory: the metrics that a run has recorded so far, read from its directory. The report shows
// them as a table, a summary and a plot of the losses.
//
// Threads: values and stateless functions; they access only their arguments and the file system.
// Errors:  kNotFound: no step was reported yet; kCorrupt: a file is malformed (the message contains
//          file and line), or no loss is finite, so that there is nothing to plot; kIoError,
//          kPermission.
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
#include "shared/run/setting_changes.h"
#include "shared/view/run_summary.h"

namespace stoker::ctl {

// A metric of a dataset, such as the loss on val.
struct MetricName {
  std::string dataset;
  std::string metric;

  std::string text() const;  // "val loss"
};

struct RunHistory {
  run::RunLayout layout;
  run::RunState state;
  view::RunSummary summary = {};
  std::vector<metrics::TrainMetrics> train;         // in order of their steps; can be empty
  std::vector<run::EvalResult> evals;               // in order of their steps; can be empty
  std::vector<run::SettingChange> setting_changes;  // while the run trained
  eval_metrics::MetricTable metric_table = {};      // empty: the run has no such file
  std::optional<MetricName> monitor = {};           // of eval/best.json
  uint64_t unread_evals = 0;                        // older than the newest kMaxListedResults
};

Result<RunHistory> read_history(const run::RunLayout& layout);
// Those of ancestors of the present state (lineage.h), in order of their steps; empty if none was evaluated.
// `maybe_unread`: the number of older ones that are not read.
Result<std::vector<run::EvalResult>> read_evals(const run::RunLayout& layout,
                                                uint64_t* maybe_unread = nullptr);

// The metrics of the first dataset that the evaluator reports, in its order. Empty before the first
// evaluation.
std::vector<MetricName> reported_metrics(const std::vector<run::EvalResult>& evals);
std::optional<double> find_value(const run::EvalResult& eval, const MetricName& metric);
// The evaluation with the best finite value, at the earliest step that reached it; nullptr: none.
const run::EvalResult* find_best(const std::vector<run::EvalResult>& evals,
                                 const run::Monitor& monitor);

// As view::trained_seconds(), of all records.
double trained_seconds(const RunHistory& history);

// A table of about ten evenly chosen reported steps and the last one, followed by the best
// evaluation, samples, time and a small plot. Speeds and waits cover all steps since the previous
// table row; the evaluation shown is the newest of those steps.
Result<std::string> render_report(const RunHistory& history, const TextStyle& style);

// Training loss and the first metric of the first evaluated dataset, over the steps. At least one point is finite.
Result<std::vector<Curve>> loss_curves(const RunHistory& history);
// One curve of the metric for each evaluated dataset that has it, and one of the training metric of
// this name. kNotFound: there is none; the message lists the available metrics.
Result<std::vector<Curve>> metric_curves(const RunHistory& history, const std::string& metric);

}  // namespace stoker::ctl
