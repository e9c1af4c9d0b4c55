// The table of metrics that the evaluation of a run can report: those of the task, of its settings,
// and with task custom those that the model lists.
//
// Threads: functions of their arguments and the file system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/eval_metrics/metric_table.h"

namespace stoker::config {

// What follows from the data and the model only.
struct EvaluatedOutputs {
  bool tokens_are_bytes = false;
  uint64_t num_classes = 0;  // outputs of a classifier; 0: not known
};

// Of the task alone.
eval_metrics::MetricTable task_metrics(const Config& config,
                                       const std::optional<EvaluatedOutputs>& maybe_outputs = {});
// With those of the model. kInvalidArgument: eval.monitor or checkpoint.monitor has a metric that the
// table lacks, or the file of the model is invalid; the message has the key.
Result<eval_metrics::MetricTable> resolve_metrics(
    const Config& config, const std::optional<EvaluatedOutputs>& maybe_outputs = {});

// What is wrong with a monitor, METRIC or DATASET/METRIC, and what to do; empty: nothing.
std::string monitor_error(const eval_metrics::MetricTable& table, const std::string& monitor);

}  // namespace stoker::config
