#include "daemon/train/plateau.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace stoker::train {
namespace {

constexpr double kMinChange = 1e-8;  // PyTorch's eps

bool is_better(const config::ReduceOnPlateauScheduler& config, double value, double best,
               bool is_larger_better) {
  const bool is_relative = config.threshold_mode == config::ThresholdMode::kRel;
  const double sign = is_larger_better ? 1 : -1;
  const double bound =
      is_relative ? best * (1 + sign * config.threshold) : best + sign * config.threshold;
  return is_larger_better ? value > bound : value < bound;
}

}  // namespace

void Plateau::add_losses(double sum, int64_t steps) {
  if (steps == 0) return;  // NaN
  loss_sum += sum;
  loss_steps += steps;
}

std::optional<double> Plateau::take_mean_loss() {
  const double sum = std::exchange(loss_sum, 0);
  const int64_t steps = std::exchange(loss_steps, 0);
  return steps == 0 ? std::nullopt : std::optional(sum / static_cast<double>(steps));
}

// A value that is not finite is no improvement, not even of none.
bool Plateau::add(const config::ReduceOnPlateauScheduler& config, double value,
                  bool is_larger_better) {
  const bool is_finite = value - value == 0;
  if (is_finite && (!maybe_best || is_better(config, value, *maybe_best, is_larger_better))) {
    maybe_best = value;
    num_bad = 0;
  } else {
    ++num_bad;
  }
  if (cooldown_left > 0) {
    --cooldown_left;
    num_bad = 0;
  }
  if (num_bad <= config.patience) return false;
  cooldown_left = config.cooldown;
  num_bad = 0;
  return true;
}

double reduced_lr(const config::ReduceOnPlateauScheduler& config, double base_lr) {
  double lr = base_lr;
  for (uint64_t i = 0; i < config.num_reductions; ++i) {
    const double next = std::max(lr * config.factor, config.min_lr);
    if (lr - next <= kMinChange) break;
    lr = next;
  }
  return lr;
}

bool can_reduce(const config::ReduceOnPlateauScheduler& config, double base_lr) {
  config::ReduceOnPlateauScheduler next = config;
  ++next.num_reductions;
  return reduced_lr(next, base_lr) < reduced_lr(config, base_lr);
}

bool monitors_training_loss(const config::SchedulerConfig& config) {
  const auto* const plateau = std::get_if<config::ReduceOnPlateauScheduler>(&config.schedule);
  return plateau != nullptr && plateau->monitor == config::PlateauMonitor::kTrainLoss;
}

bool ends_plateau_interval(const config::SchedulerConfig& config, uint64_t step) {
  if (!monitors_training_loss(config)) return false;
  const auto& plateau = std::get<config::ReduceOnPlateauScheduler>(config.schedule);
  return step % std::max<uint64_t>(1, plateau.every_steps) == 0;
}

}  // namespace stoker::train
