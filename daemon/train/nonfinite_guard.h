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
// Blocking: read() never; check_state() for the device, and in a group for the other ranks.
// Errors:   action(): kCorrupt if the run must end; the message states the cause and possible fixes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/train/coordination.h"
#include "daemon/train/step_engine.h"
#include "daemon/train/train_step.h"
#include "daemon/train/training_state.h"
#include "shared/base/status.h"
#include "shared/config/training_config.h"

namespace stoker::train {

enum class NonfiniteAction { kContinue, kRollBack };

// The values of the steps of an interval.
struct NonfiniteReport {
  NonfiniteAction action = NonfiniteAction::kContinue;
  int64_t steps = 0;  // those that count, in loss_sum
  double loss_sum = 0;
  std::vector<double> metrics;  // their values
  double grad_norm = 0;         // of the last step, before clipping; NaN if it was skipped
  int64_t skipped = 0;          // skipped steps since the read before
  int64_t empty = 0;            // steps whose loss had no values, likewise
  std::optional<uint64_t> maybe_skipped_steps;  // of the run; nullopt: none can be skipped
  std::optional<double> maybe_loss_scale;
};

class NonfiniteGuard {
 public:
  // Both must outlive this object.
  NonfiniteGuard(const config::TrainConfig& config, TrainingState& state);

  // Whether finish() can skip a step, which must then be undone: see TrainingState::keep_undo().
  bool can_skip() const { return counts() || empty_.defined(); }
  // Updates the parameters at the optimizer's learning rate and adds the step's loss and training
  // metrics to the state. If Optimizer::skipped() is defined then, and 1, the step must be undone.
  // Issues only device work on tensors with fixed addresses, so it can be captured.
  void finish(TrainStep& step);

  // Reads the values of the steps so far from the device. When they are here, now or later, they change action(), or
  // are passed to `on_finite`. With `on_finite` the interval ends: the sums of the state start again.
  using OnFinite = std::function<void(const NonfiniteReport& found)>;
  void read(StepEngine& engine, OnFinite on_finite = {});
  // The first action or error other than kContinue of all that was read or checked.
  const Result<NonfiniteAction>& action() const { return action_; }
  bool may_continue() const { return action_.ok() && *action_ == NonfiniteAction::kContinue; }
  // Why the current state is not saved.
  Status error() const;

  enum class Checked { kByThisRank, kByAllRanks };
  // action() after all work so far, and of the complete state, which may be saved then. A rank that checks alone saves
  // nothing if the run has to roll back, which it cannot alone: it fails.
  Result<NonfiniteAction> check_state(StepEngine& engine, Coordination& ranks, Checked checked);

 private:
  bool counts() const { return skipped_.defined(); }  // skipped steps
  // The device values of the steps since reset_counts().
  std::vector<at::Tensor> values() const;
  void check_buffers();
  void reset_counts();
  // Decides from the result of reading values() whether the state up to `step` can be reported and
  // saved. Adds the skipped steps to the state's count.
  Result<NonfiniteReport> evaluate(std::span<const double> values, uint64_t step);
  // Add the step's training metrics to the state's.
  void add_metrics(const TrainStep& step);
  void add_metrics_unless(const at::Tensor& is_excluded, const TrainStep& step);
  Status check_skipped(const NonfiniteReport& found, int64_t consecutive, uint64_t step);
  Result<NonfiniteAction> action_for(const std::string& found, uint64_t step) const;

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
  Result<NonfiniteAction> action_ = NonfiniteAction::kContinue;
};

}  // namespace stoker::train
