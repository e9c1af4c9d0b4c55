// The learning rate as a pure function of the step: nothing to save, nothing to restore.
//
// With s = step (0 is the first), w = warmup_steps, T = total_steps, lr = the optimizer's:
//   warm-up, s < w:  lr * (s + 1) / w
// and after it, with p = min(1, (s - w) / (T - w)) (1 where T <= w):
//   constant:  lr
//   cosine:    min_lr + (lr - min_lr) * (1 + cos(pi * p)) / 2
//   linear:    lr + (min_lr - lr) * p
//   step:      lr * gamma ^ floor((s - w) / step_size)
// Cosine and linear arrive at min_lr where training ends (s = T), as PyTorch's CosineAnnealingLR
// with T_max = T - w and LinearLR with total_iters = T - w do.
//
// Threads: pure function.
#pragma once

#include <cstdint>

#include "shared/config/training_config.h"

namespace stoker::train {

double learning_rate(const config::SchedulerConfig& config, double base_lr, uint64_t step,
                     uint64_t total_steps);

}  // namespace stoker::train
