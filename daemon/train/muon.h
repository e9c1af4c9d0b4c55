// Muon: steps for the weights of hidden layers, which are matrices, in whose directions no singular
// value is larger than the others (Jordan et al., 2024): the momentum of the gradient, made nearly
// orthogonal by Newton and Schulz's iteration. What torch.optim.Muon computes with
// adjust_lr_fn="match_rms_adamw" (Liu et al., 2025), by which a step is as large as one of adamw, so
// that rate and decay of both are the same.
//
// Threads:  the trainer's thread only.
// Blocking: never waits for the device.
// Errors:   LibTorch's exceptions pass through.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/train/optimizer.h"
#include "shared/config/training_config.h"
#include "shared/model/name_glob.h"

namespace stoker::train {

// Which parameters are Muon's; adamw updates the others.
class MuonParamFilter {
 public:
  explicit MuonParamFilter(const config::MuonConfig& config);

  // Matrices that config.adamw_params does not name.
  bool matches(const std::string& name, const at::Tensor& parameter) const;

 private:
  std::vector<model::NameGlob> for_adamw_;
};

// One update of the group's matrices and their momentum, at the group's rate.
void muon_step(const config::MuonConfig& config, Optimizer::Group& group);

}  // namespace stoker::train
