#include "daemon/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace stoker::train {

double learning_rate(const config::ScheduleConfig& config, double base_lr, uint64_t step,
                     uint64_t total_steps) {
  const uint64_t warmup = config.warmup_steps;
  if (step < warmup)
    return base_lr * (static_cast<double>(step) + 1.0) / static_cast<double>(warmup);
  const uint64_t since = step - warmup;
  const uint64_t length = total_steps > warmup ? total_steps - warmup : 0;
  const double part =
      since >= length ? 1.0 : static_cast<double>(since) / static_cast<double>(length);
  switch (config.kind) {
    case config::ScheduleKind::kConstant:
      return base_lr;
    case config::ScheduleKind::kCosine:
      return config.min_lr +
             (base_lr - config.min_lr) * (1.0 + std::cos(std::numbers::pi * part)) / 2.0;
    case config::ScheduleKind::kLinear:
      return base_lr + (config.min_lr - base_lr) * part;
    case config::ScheduleKind::kStep: {
      const uint64_t times = since / std::max<uint64_t>(1, config.every_steps);
      return base_lr * std::pow(config.factor, static_cast<double>(times));
    }
  }
  return base_lr;
}

}  // namespace stoker::train
