#include "daemon/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <variant>

namespace stoker::train {
namespace {

constexpr double kMinLrDivisor = 10;  // of the base rate, with scheduler.min_lr: null

}  // namespace

double learning_rate(const config::SchedulerConfig& config, double base_lr, uint64_t step,
                     uint64_t total_steps) {
  const uint64_t warmup = config.warmup_steps;
  if (step < warmup)
    return base_lr * (static_cast<double>(step) + 1.0) / static_cast<double>(warmup);
  const uint64_t since = step - warmup;
  const uint64_t length = total_steps > warmup ? total_steps - warmup : 0;
  const double part =
      since >= length ? 1.0 : static_cast<double>(since) / static_cast<double>(length);
  const double min_lr = config.min_lr().value_or(base_lr / kMinLrDivisor);
  if (std::holds_alternative<config::CosineScheduler>(config.schedule))
    return min_lr + (base_lr - min_lr) * (1.0 + std::cos(std::numbers::pi * part)) / 2.0;
  if (std::holds_alternative<config::LinearScheduler>(config.schedule))
    return base_lr + (min_lr - base_lr) * part;
  if (const auto* const stair = std::get_if<config::StepScheduler>(&config.schedule)) {
    const uint64_t times = since / std::max<uint64_t>(1, stair->step_size);
    return base_lr * std::pow(stair->gamma, static_cast<double>(times));
  }
  return base_lr;  // ConstantScheduler
}

}  // namespace stoker::train
