// EarlyStopping: decides from the results so far whether a run should end early. It is a pure
// function, so that an evaluator that was killed and restarted reaches the same decision.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/config/run_config.h"
#include "shared/run/eval_result.h"
#include "shared/run/lineage.h"

namespace stoker::run {

struct MonitorValue {
  uint64_t step = 0;
  double value = 0;  // of the monitored metric; says nothing if it is not finite
};

struct EarlyStopping {
  Monitor monitor;
  uint64_t patience = 0;        // consecutive evaluations without improvement; 0 = off
  uint64_t patience_steps = 0;  // steps without improvement; 0 = off
  double min_delta = 0;         // a smaller change is no improvement
  std::optional<double> stop_at;

  bool is_on() const { return patience > 0 || patience_steps > 0 || stop_at.has_value(); }
  // Equal rules have equal texts.
  std::string to_text() const;
  // Why the run should end after the last of `points`, which are in step order. Empty if it should
  // not. Values that are not finite are ignored: they are neither better nor worse than others.
  std::optional<std::string> stop_reason(std::span<const MonitorValue> points) const;
};

// Errors: as make_monitor().
Result<EarlyStopping> make_early_stopping(const config::EvalConfig& config,
                                          const eval_metrics::MetricTable& table);

// EarlyStopRequest: RUN/eval/early_stop.json, in which the evaluator requests the end of the run.
// The trainer polls for it. Nothing else is passed from the evaluator to the trainer.
//
// Errors: kNotFound: there is no request; kCorrupt: not JSON in this format; kIoError.
// Crash:  written to a temporary file, synced and renamed.
struct EarlyStopRequest {
  uint64_t step = 0;   // step of the evaluation that led to the decision
  std::string rule;    // EarlyStopping::to_text(); a run with another rule ignores the request
  std::string reason;  // human-readable
  // Of the checkpoint of `step`. Empty: written by an earlier release.
  std::string manifest_sha256 = {};
};

// Whether the run is on a branch with the checkpoint of the request; others ignore it.
bool applies(const EarlyStopRequest& request, const Lineage& lineage);

std::string to_json(const EarlyStopRequest& request);
Result<EarlyStopRequest> parse_early_stop_request(std::string_view json,
                                                  const std::string& path_in_messages);
Result<EarlyStopRequest> read_early_stop_request(const std::string& path);

}  // namespace stoker::run
