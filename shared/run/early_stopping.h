// EarlyStopping: when a run has learned what it can, by its results so far: a pure function, so that an
// evaluator that was killed and started again comes to the same end.
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

namespace stoker::run {

struct MonitorValue {
  uint64_t step = 0;
  double value = 0;  // of the goal's metric; may be NaN
};

struct EarlyStopping {
  Monitor monitor;
  uint64_t patience = 0;        // evaluations in a row without a better one; 0 = never for that
  uint64_t patience_steps = 0;  // the same in steps
  double min_delta = 0;         // less than this is no improvement
  std::optional<double> stop_at;

  bool is_on() const { return patience > 0 || patience_steps > 0 || stop_at.has_value(); }
  // Equal rules have equal texts.
  std::string to_text() const;
  // Why the run should end after the last of `points`, which are in the order of their steps; or
  // nothing.
  std::optional<std::string> stop_reason(std::span<const MonitorValue> points) const;
};

EarlyStopping make_early_stopping(const config::EvalConfig& config);

// EarlyStopRequest: RUN/eval/early_stop.json, by which the evaluator tells that the run may end. The trainer
// looks for it now and then; nothing else goes from the evaluator to the trainer.
//
// Errors:  kNotFound: none was made; kCorrupt: not the JSON that is written here; kIoError.
// Crash:   written to a temporary file, synced and renamed.
struct EarlyStopRequest {
  uint64_t step = 0;   // whose evaluation decided it
  std::string rule;    // EarlyStopping::to_text(): a run with another rule does not obey
  std::string reason;  // for people
};

std::string to_json(const EarlyStopRequest& request);
Result<EarlyStopRequest> parse_early_stop_request(std::string_view json,
                                                  const std::string& path_in_messages);
Result<EarlyStopRequest> read_early_stop_request(const std::string& path);

}  // namespace stoker::run
