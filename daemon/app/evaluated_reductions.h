// EvaluatedReductions: how often the evaluations so far reduce the learning rate (scheduler reduce_on_plateau with
// monitor eval). It is a function of the results in the run directory, as early stopping is, so that a stokerd that was
// killed and restarted reaches the same number.
//
// Threads:  one.
// Blocking: reads the new results after one was recorded, or the run has left a branch.
#pragma once

#include <cstdint>
#include <string>

#include "shared/config/config.h"
#include "shared/run/eval_result.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

class EvaluatedReductions {
 public:
  // Both must outlive this object.
  EvaluatedReductions(const config::Config& config, const run::RunLayout& layout)
      : config_(config), layout_(layout) {}

  // `lr`: optimizer.lr in effect, which min_lr limits. 0 with another scheduler or monitor.
  uint64_t count(double lr);

 private:
  uint64_t count_results(double lr);

  const config::Config& config_;
  const run::RunLayout& layout_;
  std::string stamp_;  // of what count_results() depends on
  run::EvaluatedValues values_;
  uint64_t count_ = 0;
};

}  // namespace stoker::app
