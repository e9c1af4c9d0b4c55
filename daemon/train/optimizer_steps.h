// UpdateRules: the optimizers for which LibTorch has no fused kernel on every device: rmsprop and
// adagrad with the arithmetic of PyTorch's, lion as published (Chen et al. 2023, algorithm 2), and
// muon (muon.h).
//
// Threads:  the trainer's thread only.
// Blocking: never waits for the device.
// Errors:   LibTorch's exceptions pass through.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "daemon/train/optimizer.h"
#include "shared/config/training_config.h"

namespace stoker::train {

// One update of the group's parameters and state by its gradients, at the group's rate. Where
// `found_inf`, an F32 scalar on the device, is 1, all of them stay bit for bit what they were.
void apply_update(const config::OptimizerConfig& config, Optimizer::Group& group,
                  const std::optional<at::Tensor>& found_inf);

}  // namespace stoker::train
