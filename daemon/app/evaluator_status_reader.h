// EvaluatorStatusReader: the state of the evaluator according to the run directory. The daemon and
// the evaluator do not communicate otherwise.
//
// Threads:  any.
// Blocking: tests a lock, at most once per second. Reads results only after one was recorded, or the run has left a
//           branch.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "shared/base/clock.h"
#include "shared/control/trainer_status.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

class EvaluatorStatusReader {
 public:
  // Both must outlive this object.
  EvaluatorStatusReader(const run::RunLayout& layout, Clock& clock)
      : layout_(layout), clock_(clock) {}

  control::TrainerStatus::Evaluator read_cached() const;

 private:
  control::TrainerStatus::Evaluator read() const;  // requires mutex_
  control::TrainerStatus::Evaluator read_results() const;

  const run::RunLayout& layout_;
  Clock& clock_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  mutable bool read_once_ = false;
  mutable std::chrono::nanoseconds read_at_{0};
  mutable control::TrainerStatus::Evaluator last_;
  mutable std::string results_stamp_;  // of the files that read_results() depends on
  mutable control::TrainerStatus::Evaluator results_;
};

}  // namespace stoker::app
