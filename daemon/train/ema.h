// EmaWeights: an exponential moving average (EMA) of the trained parameters, which often evaluates
// better than the parameters themselves. Equivalent to torch.optim.swa_utils.AveragedModel with an
// EMA.
//
//   after a step:  average <- decay * average + (1 - decay) * parameter
//
// with the decay of ema_decay(), a function of the step alone: there is no state but the average. It is
// initialized from the parameters at the start of training. Tensors that are not
// trained (frozen parameters, batch norm statistics) have no average: tensors() contains the
// model's own, averages() does not contain them.
//
// Threads:   the trainer thread only.
// Ownership: owns the averages, on the parameters' device. Their addresses never change.
// Errors:    LibTorch's exceptions pass through.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/config/training_config.h"
#include "shared/model/model.h"

namespace stoker::train {

// Of the update after `step`, which counts from 1; nullopt: no update follows it.
std::optional<double> ema_decay(const config::TrainConfig& config, uint64_t step);

class EmaWeights {
 public:
  // `model` must outlive this object and stay on its device. `config` has an ema_decay.
  EmaWeights(const model::Model& model, const config::TrainConfig& config);

  // Resets the average to the current parameters.
  void reset_to_parameters();
  // The step that update() follows, which counts from 1.
  void set_step(uint64_t step);
  // Reads what depends on the step from a tensor, so that update() can be captured in a CUDA graph.
  void use_device_weight();
  // Call after each step. Does not wait for the device.
  // `maybe_skipped`: a scalar on the device; if it is 1, nothing changes.
  void update(const at::Tensor& maybe_skipped = {});

  // The tensors of ema.safetensors: a complete model, in the order of model::named_tensors(). They
  // are not copies. Only to be read: some are tensors of the model.
  const model::NamedTensors& tensors() const { return tensors_; }
  // Those of them that belong to this object, to which a file can be loaded.
  const model::NamedTensors& averages() const { return named_averages_; }

 private:
  void average() const;

  const config::TrainConfig config_;
  double weight_ = 0;         // of the parameters in the next update; 0: there is none
  at::Tensor device_weight_;  // scalar; undefined: update() takes the double
  std::vector<at::Tensor> parameters_, averages_;  // of the trained parameters
  model::NamedTensors tensors_, named_averages_;
};

}  // namespace stoker::train
