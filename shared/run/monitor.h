// Monitor: the one number of an evaluation that says which checkpoint is better (eval.monitor).
//
// Threads: values.
#pragma once

#include <optional>
#include <string>

#include "shared/base/status.h"
#include "shared/config/run_config.h"
#include "shared/run/eval_result.h"

namespace stoker::run {

struct Monitor {
  std::string dataset;
  std::string metric;

  // Accuracies and the like; of losses and errors lower is better.
  bool higher_is_better() const;
  // By more than `min_delta`. What is not a number is never better, and anything is better than it.
  bool is_better(double value, double than, double min_delta = 0) const;
  std::string to_text() const { return dataset + "/" + metric; }
};

// eval.monitor, "METRIC" (of the first dataset) or "DATASET/METRIC".
Monitor make_monitor(const config::EvalConfig& config);
// The same of another `metric` than eval.monitor.
Monitor make_monitor(const config::EvalConfig& config, const std::string& metric);

// kInvalidArgument: the result has no such metric; names those that it has.
Result<double> monitored_value(const EvalResult& result, const Monitor& monitor);

}  // namespace stoker::run
