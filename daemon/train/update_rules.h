// apply_update_rule(): one update of a parameter group by the optimizers for which LibTorch has no fused
// kernel on every device.
//
//   rmsprop, adagrad, nadam, radam, adamax, adadelta, adafactor: as torch.optim
//   lamb, lars: as timm.optim (You et al., 2019 and 2017; lamb with grad averaging and bias correction,
//               without its clipping, for which there is train.max_grad_norm)
//   schedule_free_adamw: AdamWScheduleFree of schedulefree 1.4.1 with r = 0 and weight_lr_power = 2; the warmup is that of
//               the scheduler. Its z is kept as the difference from the parameters, which is 0 at first
//   lion:       Chen et al., 2023, algorithm 2
//   muon:       muon.h
//
// Numbers that depend on the step are computed in F64 from the steps of the group, which are on the device of
// the parameters: nothing is read back, so that an update can be captured in a CUDA graph.
//
// Threads:  the trainer thread only.
// Blocking: never waits for the device.
// Errors:   LibTorch's exceptions pass through.
#pragma once

#include "daemon/train/optimizer.h"
#include "shared/config/training_config.h"

namespace stoker::train {

// Updates the group's parameters and state once from its gradients, at the group's learning rate. Does not
// change the gradients. `group` has at least one parameter.
void apply_update_rule(const config::OptimizerConfig& config, Optimizer::Group& group);

}  // namespace stoker::train
