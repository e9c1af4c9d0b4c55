#include "daemon/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <variant>
#include <vector>

#include "daemon/train/plateau.h"

namespace stoker::train {
namespace {

constexpr double kMinLrDivisor = 10;  // of the base rate, with scheduler.min_lr: null

// What a schedule depends on after the warmup.
struct Position {
  double base_lr = 0;
  double min_lr = 0;
  uint64_t since = 0;   // steps since the end of the warmup
  uint64_t length = 0;  // steps after the warmup
  double part = 0;      // since / length, from 0 to 1
};

// From `start` at part 0 to `end` at part 1.
double cosine(double start, double end, double part) {
  return end + (start - end) * (1.0 + std::cos(std::numbers::pi * part)) / 2.0;
}

double decayed(const Position& at, double gamma, double times) {
  return at.base_lr * std::pow(gamma, times);
}

double rate(const config::ConstantScheduler&, const Position& at) { return at.base_lr; }
double rate(const config::CosineScheduler&, const Position& at) {
  return cosine(at.base_lr, at.min_lr, at.part);
}
double rate(const config::LinearScheduler&, const Position& at) {
  return at.base_lr + (at.min_lr - at.base_lr) * at.part;
}
double rate(const config::StepScheduler& steps, const Position& at) {
  const uint64_t times = at.since / std::max<uint64_t>(1, steps.step_size);
  return decayed(at, steps.gamma, static_cast<double>(times));
}
double rate(const config::MultiStepScheduler& steps, const Position& at) {
  const auto times = std::ranges::count_if(steps.milestones, [&](int64_t milestone) {
    return static_cast<uint64_t>(milestone) <= at.since;
  });
  return decayed(at, steps.gamma, static_cast<double>(times));
}
double rate(const config::ExponentialScheduler& decay, const Position& at) {
  const auto size = static_cast<double>(std::max<uint64_t>(1, decay.step_size));
  return decayed(at, decay.gamma, static_cast<double>(at.since) / size);
}
double rate(const config::PolynomialScheduler& decay, const Position& at) {
  return at.min_lr + (at.base_lr - at.min_lr) * std::pow(1.0 - at.part, decay.power);
}
double rate(const config::ReduceOnPlateauScheduler&, const Position& at) {
  return at.base_lr;  // reduced, which a warmup rises to
}
double rate(const config::CosineWarmRestartsScheduler& restarts, const Position& at) {
  uint64_t length = std::max<uint64_t>(1, restarts.t_0), since = at.since;
  if (restarts.t_mult <= 1) since %= length;
  for (; restarts.t_mult > 1 && since >= length; length *= restarts.t_mult) since -= length;
  return cosine(at.base_lr, at.min_lr, static_cast<double>(since) / static_cast<double>(length));
}

// Smith and Topin, 2017: rises to the base rate in pct_start of the steps, and falls to the last one. The ends of
// the phases are those of PyTorch's OneCycleLR, no whole steps.
double rate(const config::OneCycleScheduler& cycle, const Position& at) {
  const double first = at.base_lr / cycle.div_factor, last = first / cycle.final_div_factor;
  const auto total = static_cast<double>(at.length), step = static_cast<double>(at.since);
  const double top = cycle.pct_start * total - 1;
  struct Phase {
    double end = 0;  // step
    double lr = 0;   // at its end
  };
  std::vector<Phase> phases{{top, at.base_lr}};
  if (cycle.three_phase) phases.push_back({2 * top, first});
  phases.push_back({total - 1, last});
  double begin = 0, from = first;
  for (const Phase& phase : phases) {
    if (step <= phase.end || &phase == &phases.back()) {
      const double length = phase.end - begin;
      const double part = length > 0 ? std::clamp((step - begin) / length, 0.0, 1.0) : 1.0;
      if (cycle.anneal_strategy == config::AnnealStrategy::kLinear)
        return from + (phase.lr - from) * part;
      return cosine(from, phase.lr, part);
    }
    begin = phase.end;
    from = phase.lr;
  }
  return last;
}

double warmup_factor(const config::SchedulerConfig& config, uint64_t step) {
  const auto at = static_cast<double>(step), length = static_cast<double>(config.warmup());
  if (!config.warmup_start_factor) return (at + 1.0) / length;
  return *config.warmup_start_factor + (1.0 - *config.warmup_start_factor) * at / length;
}

}  // namespace

double learning_rate(const config::SchedulerConfig& config, double base_lr, uint64_t step,
                     uint64_t total_steps) {
  const uint64_t warmup = config.warmup();
  if (const auto* const plateau = std::get_if<config::ReduceOnPlateauScheduler>(&config.schedule))
    base_lr = reduced_lr(*plateau, base_lr);
  if (step < warmup) return base_lr * warmup_factor(config, step);
  const uint64_t since = step - warmup;
  const uint64_t length = total_steps > warmup ? total_steps - warmup : 0;
  const Position at{
      .base_lr = base_lr,
      .min_lr = config.min_lr().value_or(base_lr / kMinLrDivisor),
      .since = since,
      .length = length,
      .part = since >= length ? 1.0 : static_cast<double>(since) / static_cast<double>(length)};
  return std::visit([&at](const auto& schedule) { return rate(schedule, at); }, config.schedule);
}

}  // namespace stoker::train
