// NonfiniteGuard: what becomes of a step whose loss or gradient is not a finite number
// (train.on_nonfinite).
//
// fail:      the run ends; the checkpoint before stays.
// skip_step: such a step changes no parameter, and its loss is left out; too many in a row end the
//            run. (What the forward pass itself changes, as batch norm's statistics, is changed.)
// rollback:  the run goes back to its last checkpoint, with a lower learning rate; too often ends
//            it.
//
// In fp16 a gradient that overflows is no trouble: the step changes nothing and is counted, the loss
// scale falls, and training goes on. It ends where that does not help any more (see kMinScale).
//
// Threads:  the trainer's thread only.
// Blocking: never: what the device knows is asked for by values(), and judged when it has come.
// Errors:   evaluate(): kCorrupt when the run must end, saying why and what may help.
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

  // Ends a step by its update, at the optimizer's learning rate, and adds its loss to the state's.
  // Nothing but work of the device, on tensors that stay where they are: it may be captured.
  void finish(TrainStep& step);
  // What the device knows of the steps since the last time, to be read before anything is reported
  // or saved. The count of skipped steps begins anew with reset_counts(), once the reading has begun.
  std::vector<at::Tensor> values() const;
  void reset_counts();

  struct NonfiniteReport {
    NonfiniteAction action = NonfiniteAction::kContinue;
    double loss_sum = 0;
    double grad_norm = 0;  // of the last step taken, before clipping
    int64_t skipped = 0;   // steps since the last time
    std::optional<double> maybe_loss_scale;
  };
  // Whether what was learned up to `step` may be reported and saved, by what was read of values().
  // Adds the skipped steps to the state's.
  Result<NonfiniteReport> evaluate(std::span<const double> values, uint64_t step);
  bool counts() const { return skipped_.defined(); }  // steps that change nothing

 private:
  Status check_skipped(const NonfiniteReport& found, int64_t consecutive, uint64_t step);
  Status too_many(uint64_t step, const std::string& what) const;

  const config::TrainConfig& config_;
  TrainingState& state_;
  const bool skips_;      // whatever is not finite
  at::Tensor grad_norm_;  // F32 scalar on the device
  // With skip_step, and in fp16; F64 scalars on the device.
  at::Tensor skipped_;  // since the last look
  at::Tensor consecutive_;
};

}  // namespace stoker::train
