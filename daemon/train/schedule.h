// learning_rate(): the learning rate as a pure function of the step, with no state to save or
// restore.
//
// With s = step (starts at 0), w = warmup_steps, T = total_steps, lr = base_lr:
//   warm-up, s < w:  lr * (s + 1) / w
// After the warm-up, with p = min(1, (s - w) / (T - w)), or 1 if T <= w:
//   constant:  lr
//   cosine:    min_lr + (lr - min_lr) * (1 + cos(pi * p)) / 2
//   linear:    lr + (min_lr - lr) * p
//   step:      lr * gamma ^ floor((s - w) / step_size)
// Cosine and linear reach min_lr at the end of training (s = T), as PyTorch's CosineAnnealingLR
// with T_max = T - w and LinearLR with total_iters = T - w do.
//
// Threads: a pure function.
#pragma once

#include <cstdint>

#include "shared/config/training_config.h"

namespace stoker::train {

double learning_rate(const config::SchedulerConfig& config, double base_lr, uint64_t step,
                     uint64_t total_steps);

}  // namespace stoker::train
