// FiniteGuard: what becomes of a step whose loss or gradient is not a finite number
// (train.on_nonfinite).
//
// stop:     the run ends; the checkpoint before stays.
// skip:     such a step changes no parameter, and its loss is left out; too many in a row end the
//           run. (What the forward pass itself changes, as batch norm's statistics, is changed.)
// rollback: the run goes back to its last checkpoint, with a lower learning rate; too often ends it.
//
// Threads:  the trainer's thread only.
// Blocking: finish() never waits for the device, look() does.
// Errors:   look(): kCorrupt when the run must end, saying why and what may help.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "daemon/train/train_step.h"
#include "daemon/train/training_state.h"
#include "shared/base/status.h"
#include "shared/config/train_config.h"

namespace stoker::train {

class FiniteGuard {
 public:
  enum class Verdict { kFine, kRollBack };

  // Both must outlive this object.
  FiniteGuard(const config::TrainConfig& config, TrainingState& state);

  // Ends a step by its update, and adds its loss to the state's.
  void finish(TrainStep& step, double lr);
  // Before anything is reported or saved: whether what was learned may be. Takes the steps that
  // were skipped since the last look out of the state's count.
  Result<Verdict> look();

  const at::Tensor& grad_norm() const {
    return grad_norm_;
  }  // of the last step taken, before clipping

 private:
  Result<Verdict> look_at_skipped();
  Status too_many(const std::string& what) const;

  const config::TrainConfig& config_;
  TrainingState& state_;
  at::Tensor grad_norm_;
  // With skip; F64 scalars on the device.
  at::Tensor skipped_;  // since the last look
  at::Tensor in_a_row_;
};

}  // namespace stoker::train
