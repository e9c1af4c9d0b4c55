// EmaWeights: an exponential moving average (EMA) of the trained parameters, which often evaluates
// better than the parameters themselves. Equivalent to torch.optim.swa_utils.AveragedModel with an
// EMA.
//
//   after each step:  average <- decay * average + (1 - decay) * parameter
//
// The average is initialized from the parameters at the start of training. Tensors that are not
// trained (frozen parameters, batch norm statistics) have no average: tensors() contains the
// model's own, averages() does not contain them.
//
// Threads:   the trainer thread only.
// Ownership: owns the averages, on the parameters' device. Their addresses never change.
// Errors:    LibTorch's exceptions pass through.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/model/model.h"

namespace stoker::train {

class EmaWeights {
 public:
  // `model` must outlive this object and stay on its device.
  EmaWeights(const model::Model& model, double decay);

  // Resets the average to the current parameters.
  void reset_to_parameters();
  // Call after each step. Does not wait for the device.
  // `maybe_skipped`: a scalar on the device; if it is 1, nothing changes.
  void update(const at::Tensor& maybe_skipped = {});

  // The tensors of ema.safetensors: a complete model, in the order of model::named_tensors(). They
  // are not copies. Only to be read: some are tensors of the model.
  const model::NamedTensors& tensors() const { return tensors_; }
  // Those of them that belong to this object, to which a file can be loaded.
  const model::NamedTensors& averages() const { return named_averages_; }

 private:
  const double decay_;
  std::vector<at::Tensor> parameters_, averages_;  // of the trained parameters
  model::NamedTensors tensors_, named_averages_;
};

}  // namespace stoker::train
