// EvaluatorStatusReader: reads the evaluator's status from the run directory. The daemon never
// communicates with the evaluator.
//
// Threads:  any.
// Blocking: reads two small files, at most once per second.
#pragma once

#include <chrono>
#include <mutex>

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
  control::TrainerStatus::Evaluator read() const;

  const run::RunLayout& layout_;
  Clock& clock_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  mutable bool read_once_ = false;
  mutable std::chrono::nanoseconds read_at_{0};
  mutable control::TrainerStatus::Evaluator last_;
};

}  // namespace stoker::app
