// RunHistory: what a run has measured so far, read from its directory.
//
// Threads: values.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/metrics/train_row.h"
#include "shared/run/eval_result.h"
#include "shared/run/run_state.h"

namespace stoker::ctl {

struct RunHistory {
  std::string run_dir;
  run::RunState state;
  std::vector<metrics::TrainRow> train;  // in the order of their steps; at least one
  std::vector<run::EvalResult> evals;    // in the order of their steps; may be empty

  const run::EvalResult* find_eval(uint64_t step) const;  // nullptr: none of this step
};

// kNotFound: there is no such run, or it has not reported a step yet; says what to do. kCorrupt:
// names file and line.
Result<RunHistory> read_history(const std::string& run_dir);

}  // namespace stoker::ctl
