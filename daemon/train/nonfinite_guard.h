// NonfiniteGuard: handles steps with a nonfinite loss, gradient or buffer (train.on_nonfinite).
//
//   fail:      the run ends; the last checkpoint stays valid.
//   skip_step: the step leaves the state as it was (see TrainingState) and its loss is not counted; too
//              many consecutive skipped steps end the run.
//   rollback:  the run resumes from its last checkpoint with a lower learning rate; too many
//              rollbacks end the run.
//
// In fp16 an overflowing gradient is not an error: the step changes nothing and is counted, the
// loss scale is reduced and training continues. The run ends if that no longer helps (see
// kMinScale).
//
// Threads:  the trainer thread only.
// Blocking: never. The caller reads values() from the device and passes the result to evaluate().
// Errors:   evaluate(): kCorrupt if the run must end; the message states the cause and possible
//           fixes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/train/train_step.h"
#include "daemon/train/training_state.h"
#include "shared/base/status.h"
#include "shared/config/training_config.h"

namespace stoker::train {

class NonfiniteGuard {
 public:
  enum class NonfiniteAction { kContinue, kRollBack };

  // Both must outlive this object.
  NonfiniteGuard(const config::TrainConfig& config, TrainingState& state);

  // Whether finish() can skip a step, which must then be undone: see TrainingState::keep_undo().
  bool can_skip() const { return counts() || empty_.defined(); }
  // Updates the parameters at the optimizer's learning rate and adds the step's loss and training
  // metrics to the state. If Optimizer::skipped() is defined then, and 1, the step must be undone.
  // Issues only device work on tensors with fixed addresses, so it can be captured.
  void finish(TrainStep& step);
  // The device values of the steps since reset_counts(). They must be read before anything is
  // reported or saved. Call check_buffers() before the read, and reset_counts() after it has been started.
  std::vector<at::Tensor> values() const;
  void check_buffers();
  void reset_counts();

  struct NonfiniteReport {
    NonfiniteAction action = NonfiniteAction::kContinue;
    double loss_sum = 0;
    std::vector<double> metrics;  // their values
    double grad_norm = 0;         // of the last step, before clipping; NaN if it was skipped
    int64_t skipped = 0;          // skipped steps since reset_counts()
    int64_t empty = 0;            // steps whose loss had no values, likewise
    std::optional<double> maybe_loss_scale;
  };
  // Decides from the result of reading values() whether the state up to `step` can be reported and
  // saved. Adds the skipped steps to the state's count.
  Result<NonfiniteReport> evaluate(std::span<const double> values, uint64_t step);
  // The same for the complete state, before it is saved: what TrainingState::first_nonfinite() has found.
  Result<NonfiniteAction> evaluate_state(const std::string& first_nonfinite, uint64_t step) const;
  bool counts() const { return skipped_.defined(); }  // skipped steps

 private:
  // Add the step's training metrics to the state's.
  void add_metrics(const TrainStep& step);
  void add_metrics_unless(const at::Tensor& is_excluded, const TrainStep& step);
  Status check_skipped(const NonfiniteReport& found, int64_t consecutive, uint64_t step);
  Result<NonfiniteAction> action(const std::string& found, uint64_t step) const;

  const config::TrainConfig& config_;
  TrainingState& state_;
  const bool skips_;      // on_nonfinite: skip_step
  at::Tensor grad_norm_;  // F32 scalar on the device; kSkipped
  // F32 scalar on the device: 1 if a buffer is not finite. Undefined: no buffers, or such steps are skipped.
  at::Tensor found_buffers_;
  // Only with skip_step or fp16; F64 scalars on the device.
  at::Tensor skipped_;  // since reset_counts()
  at::Tensor consecutive_;
  at::Tensor empty_;  // since reset_counts(), F64 scalar; undefined: each step has values
};

}  // namespace stoker::train
