// Plateau: when scheduler reduce_on_plateau reduces the learning rate: as
// torch.optim.lr_scheduler.ReduceLROnPlateau, which is given a value after each interval.
//
// How often it has reduced is scheduler.num_reductions, a live setting: all ranks of a group change it after
// the same step, and a checkpoint has it.
//
// Threads: a value; pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "shared/config/training_config.h"

namespace stoker::train {

struct Plateau {
  std::optional<double> maybe_best;
  uint64_t num_bad = 0;  // values without improvement since the best one, or since a reduction
  uint64_t cooldown_left = 0;  // values
  // The training loss since the last interval.
  double loss_sum = 0;
  int64_t loss_steps = 0;

  bool operator==(const Plateau&) const = default;

  void add_losses(double sum, int64_t steps);
  // Ends the interval. nullopt: none of its steps has a loss.
  std::optional<double> take_mean_loss();
  // Whether the learning rate is reduced after this value of the monitored metric.
  bool add(const config::ReduceOnPlateauScheduler& config, double value, bool is_larger_better);
};

// From `base_lr`, after config.num_reductions; a change below 1e-8 is none.
double reduced_lr(const config::ReduceOnPlateauScheduler& config, double base_lr);
// Whether a further reduction changes it.
bool can_reduce(const config::ReduceOnPlateauScheduler& config, double base_lr);

bool monitors_training_loss(const config::SchedulerConfig& config);
// Whether it does, and an interval is complete after `step`.
bool ends_plateau_interval(const config::SchedulerConfig& config, uint64_t step);

}  // namespace stoker::train
