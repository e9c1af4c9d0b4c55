// EmaWeights: an exponential moving average of the trained parameters, which often evaluates
// better than the parameters themselves; as torch.optim.swa_utils.AveragedModel with an EMA.
//
//   after each step:  average <- decay * average + (1 - decay) * parameter
//
// It begins as the parameters are when training begins. What is not trained (frozen parameters, the
// statistics of batch norm) has no average: there stands what the model has.
//
// Threads: the trainer's thread only.
// Owner:   the averages, on the parameters' device; their addresses never change.
// Errors:  LibTorch's exceptions pass through.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/model/model.h"

namespace stoker::train {

class EmaWeights {
 public:
  // `model` must outlive this object, and stay on the device that it is on.
  EmaWeights(const model::Model& model, double decay);

  // Takes the parameters as they are for the average.
  void begin();
  // After a step; nothing waits for the device.
  void update();

  // A whole model, in the order of model::named_tensors(): what ema.safetensors holds. The tensors
  // themselves, not copies.
  const model::NamedTensors& tensors() const { return tensors_; }

 private:
  const double decay_;
  std::vector<at::Tensor> parameters_, averages_;  // of those that are trained
  model::NamedTensors tensors_;
};

}  // namespace stoker::train
