// learning_rate(): the learning rate as a pure function of the step, with no state to save or
// restore.
//
// With s = step (starts at 0), w = warmup_steps, f = warmup_start_factor, T = total_steps, lr = base_lr:
//   warm-up, s < w:  lr * (s + 1) / w, or lr * (f + (1 - f) * s / w)
// After the warm-up, with t = s - w, p = min(1, t / (T - w)), or 1 if T <= w:
//   constant:     lr
//   cosine:       min_lr + (lr - min_lr) * (1 + cos(pi * p)) / 2
//   linear:       lr + (min_lr - lr) * p
//   polynomial:   min_lr + (lr - min_lr) * (1 - p) ^ power
//   step:         lr * gamma ^ floor(t / step_size)
//   multi_step:   lr * gamma ^ (number of milestones that are at most t)
//   exponential:  lr * gamma ^ (t / step_size)
//   cosine_warm_restarts: as cosine, with p = (steps since the last restart) / (steps between it and the next)
//   reduce_on_plateau: lr after num_reductions (plateau.h)
//   one_cycle:    from lr / div_factor to lr to lr / div_factor / final_div_factor, without a warm-up
// These are the values of PyTorch's schedulers: LinearLR for the warm-up (with null start_factor 1 / w and
// total_iters w - 1), then CosineAnnealingLR with T_max = T - w, LinearLR and PolynomialLR with
// total_iters = T - w, StepLR, MultiStepLR, ExponentialLR, CosineAnnealingWarmRestarts, ReduceLROnPlateau, and
// OneCycleLR with total_steps = T, one scheduler step for each step.
//
// Threads: a pure function.
#pragma once

#include <cstdint>

#include "shared/config/training_config.h"

namespace stoker::train {

double learning_rate(const config::SchedulerConfig& config, double base_lr, uint64_t step,
                     uint64_t total_steps);

}  // namespace stoker::train
