// Muon: updates the weight matrices of hidden layers by their orthogonalized momentum (Jordan et
// al., 2024). A Newton-Schulz iteration makes the momentum of the gradient nearly orthogonal, so
// that no direction of an update has a much larger singular value than the others. Computes the
// same as torch.optim.Muon with adjust_lr_fn="match_rms_adamw" (Liu et al., 2025), which gives
// updates the magnitude of adamw's, so that both use the same learning rate and weight decay.
//
// Threads:  the trainer thread only.
// Blocking: never waits for the device.
// Errors:   LibTorch's exceptions pass through.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/train/optimizer.h"
#include "shared/base/glob.h"
#include "shared/config/training_config.h"

namespace stoker::train {

// Selects the parameters that Muon updates; adamw updates the others.
class MuonParamFilter {
 public:
  explicit MuonParamFilter(const config::MuonConfig& config);

  // True for matrices that do not match config.adamw_params.
  bool matches(const std::string& name, const at::Tensor& parameter) const;

 private:
  std::vector<NameGlob> for_adamw_;
};

// Updates the matrices of the group and their momentum once, at the group's learning rate.
void muon_step(const config::MuonConfig& config, Optimizer::Group& group);

}  // namespace stoker::train
