// apply_update(): the optimizers for which LibTorch has no fused kernel on every device. rmsprop
// and adagrad follow PyTorch's arithmetic, lion follows the paper (Chen et al., 2023, algorithm 2),
// and muon is in muon.h.
//
// Threads:  the trainer thread only.
// Blocking: never waits for the device.
// Errors:   LibTorch's exceptions pass through.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "daemon/train/optimizer.h"
#include "shared/config/training_config.h"

namespace stoker::train {

// Updates the group's parameters and state once from its gradients, at the group's learning rate.
// If `found_inf`, an F32 scalar on the device, is 1, they stay bit-for-bit unchanged.
void apply_update(const config::OptimizerConfig& config, Optimizer::Group& group,
                  const std::optional<at::Tensor>& found_inf);

}  // namespace stoker::train
