#include "shared/config/config_warnings.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "shared/base/number_format.h"
#include "shared/config/epochs.h"

namespace stoker::config {
namespace {

using Found = std::optional<std::string>;

std::string max_steps_of(const Config& config) {
  return "train.max_steps (" + std::to_string(config.train.max_steps) + ")";
}

std::string percent(double fraction) { return std::to_string(std::llround(100 * fraction)) + " %"; }

// ---- Learning rate

Found check_warmup(const Config& config) {
  const uint64_t warmup = config.scheduler.warmup();
  const uint64_t steps = config.train.max_steps;
  const bool decays = config.scheduler.name() != SchedulerName::kConstant;
  if (warmup < steps || (warmup == steps && !decays)) return {};
  const std::string found = std::to_string(warmup) + " is not below " + max_steps_of(config);
  if (warmup == steps)
    return found + ", so that the learning rate does not decrease after the warmup; lower it";
  // Rounded down, so that it is not 100 %.
  const double reached =
      std::floor(100 * static_cast<double>(steps) / static_cast<double>(warmup)) / 100;
  return found + ", so that the learning rate only reaches " + percent(reached) +
         " of optimizer.lr; lower it";
}

Found check_step_size(const Config& config) {
  const auto* const step = std::get_if<StepScheduler>(&config.scheduler.schedule);
  const uint64_t warmup = config.scheduler.warmup();
  if (step == nullptr || warmup + step->step_size < config.train.max_steps) return {};
  return std::to_string(step->step_size) + " steps after the warmup (" + std::to_string(warmup) +
         ") are not before " + max_steps_of(config) +
         ", so that the learning rate never changes; lower it";
}

Found check_milestones(const Config& config) {
  const auto* const steps = std::get_if<MultiStepScheduler>(&config.scheduler.schedule);
  const uint64_t warmup = config.scheduler.warmup();
  if (steps == nullptr || steps->milestones.empty()) return {};
  const auto first = static_cast<uint64_t>(steps->milestones.front());
  if (warmup + first < config.train.max_steps) return {};
  return std::to_string(first) + " steps after the warmup (" + std::to_string(warmup) +
         ") are not before " + max_steps_of(config) +
         ", so that the learning rate never changes; lower it";
}

Found check_gamma(const Config& config) {
  const double gamma = std::visit(
      [](const auto& each) {
        if constexpr (requires { each.gamma; }) return each.gamma;
        return 1.0;
      },
      config.scheduler.schedule);
  if (gamma <= 1) return {};
  return format_shortest(gamma) +
         " is above 1, so that the learning rate rises above optimizer.lr; set it below 1";
}

Found check_average_schedule(const Config& config) {
  const SchedulerName name = config.scheduler.name();
  if (!config.optimizer.averages() || name == SchedulerName::kConstant ||
      name == SchedulerName::kReduceOnPlateau)
    return {};
  return std::string(to_string(name)) +
         " changes the learning rate, which the average of schedule_free_adamw replaces; set "
         "constant";
}

// ---- Settings that take effect after the end of the run

Found check_unfreeze(const Config& config) {
  const auto step = config.model.unfreeze_at_step;
  if (!step || *step < config.train.max_steps) return {};
  return std::to_string(*step) + " is not below " + max_steps_of(config) +
         ", so that model.freeze holds for the whole run; lower it, or set it to null";
}

Found check_patience_steps(const Config& config) {
  const auto patience = config.eval.early_stopping.patience_steps;
  if (!patience || *patience < config.train.max_steps) return {};
  return std::to_string(*patience) + " is not below " + max_steps_of(config) +
         ", so that it never ends the run; lower it, or set it to null";
}

Found check_interval(const Config& config) {
  const EvalConfig& eval = config.eval;
  if (eval.checkpoints != CheckpointSelection::kInterval || eval.datasets.empty() ||
      eval.every_steps <= config.train.max_steps)
    return {};
  return std::to_string(eval.every_steps) + " is above " + max_steps_of(config) +
         ", so that only the last checkpoint is evaluated; lower it";
}

Found check_ema(const Config& config) {
  const TrainConfig& train = config.train;
  if (!train.ema_decay || train.ema_warmup || !config.eval.use_ema) return {};
  const uint64_t updates = train.max_steps / train.ema_every_steps;
  const double share = std::pow(*train.ema_decay, static_cast<double>(updates));
  constexpr double kMaxShare = 0.5;
  if (share <= kMaxShare) return {};
  return format_shortest(*train.ema_decay) + " leaves " + percent(share) +
         " of the initial weights in the average after " + max_steps_of(config) +
         ", which eval.use_ema evaluates; lower it";
}

// ---- Checkpoints

bool saves_by_steps_only(const CheckpointConfig& checkpoint) {
  return !checkpoint.save_every_seconds && !checkpoint.save_on_loss_improvement;
}

Found check_keep_every(const Config& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (!checkpoint.keep_every_steps) return {};
  const uint64_t keep = *checkpoint.keep_every_steps;
  const std::string kept = "no checkpoint is retained by it";
  if (keep > config.train.max_steps)
    return std::to_string(keep) + " is above " + max_steps_of(config) + ", so that " + kept +
           "; lower it, or set it to null";
  // The first and the last checkpoint are saved at any step.
  if (!checkpoint.save_every_steps || checkpoint.save_at_start ||
      config.train.max_steps % keep == 0)
    return {};
  const uint64_t save = *checkpoint.save_every_steps;
  uint64_t common = 0;  // the least multiple of both
  if (!__builtin_mul_overflow(keep / std::gcd(keep, save), save, &common) &&
      common <= config.train.max_steps)
    return {};
  return std::to_string(keep) + " is no multiple of checkpoint.save_every_steps (" +
         std::to_string(save) + "), and they have no common multiple up to " +
         max_steps_of(config) + ", so that " + kept + "; set it to a multiple";
}

Found check_rollback(const Config& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  const bool has_step =
      checkpoint.save_every_steps && *checkpoint.save_every_steps < config.train.max_steps;
  if (config.train.on_nonfinite != OnNonfinite::kRollback || has_step || checkpoint.save_at_start ||
      !saves_by_steps_only(checkpoint))
    return {};
  return "rollback returns to the last checkpoint, and none is saved before " +
         max_steps_of(config) + "; set checkpoint.save_every_steps";
}

// ---- Settings that others disable

Found check_max_nonfinite(const Config& config) {
  if (config.train.on_nonfinite != OnNonfinite::kFail ||
      config.train.max_nonfinite == TrainConfig{}.max_nonfinite)
    return {};
  return "has no effect with train.on_nonfinite fail; set that to skip_step or rollback";
}

Found check_rollback_factor(const Config& config) {
  if (config.train.on_nonfinite == OnNonfinite::kRollback ||
      config.train.rollback_lr_factor == TrainConfig{}.rollback_lr_factor)
    return {};
  return "has no effect without train.on_nonfinite rollback";
}

Found check_min_delta(const Config& config) {
  const EarlyStoppingConfig& stopping = config.eval.early_stopping;
  if (stopping.min_delta == 0 || stopping.patience || stopping.patience_steps) return {};
  return "has no effect without patience or patience_steps; set one of them";
}

Found check_ranking(const Config& config) {
  if (config.checkpoint.monitor.empty() || config.checkpoint.save_top_k > 0) return {};
  return "has no effect with checkpoint.save_top_k 0; set that to at least 1";
}

// Nothing evaluates the run.
constexpr const char* kNoDatasets =
    "has no effect with eval.datasets []; name a dataset to evaluate";

Found check_stopping_datasets(const Config& config) {
  const EarlyStoppingConfig& stopping = config.eval.early_stopping;
  const bool is_on = stopping.patience || stopping.patience_steps || stopping.stopping_threshold;
  return is_on && config.eval.datasets.empty() ? Found(kNoDatasets) : Found();
}

Found check_ranking_datasets(const Config& config) {
  const bool is_on = !config.checkpoint.monitor.empty() && config.checkpoint.save_top_k > 0;
  return is_on && config.eval.datasets.empty() ? Found(kNoDatasets) : Found();
}

Found check_command_datasets(const Config& config) {
  const bool is_on = !config.eval.on_best_command.empty();
  return is_on && config.eval.datasets.empty() ? Found(kNoDatasets) : Found();
}

Found check_use_ema_datasets(const Config& config) {
  return config.eval.use_ema && config.eval.datasets.empty() ? Found(kNoDatasets) : Found();
}

Found check_average_evaluation(const Config& config) {
  if (!config.optimizer.averages() || config.eval.use_ema || config.eval.datasets.empty())
    return {};
  return "false evaluates the weights that schedule_free_adamw trains, not their average; set it "
         "to true";
}

struct Check {
  std::string_view key;
  Found (*find)(const Config& config);
  bool compares_steps = false;
};

constexpr Check kChecks[] = {
    {"scheduler.warmup_steps", check_warmup, true},
    {"scheduler.step_size", check_step_size, true},
    {"scheduler.milestones", check_milestones, true},
    {"scheduler.gamma", check_gamma},
    {"scheduler.name", check_average_schedule},
    {"model.unfreeze_at_step", check_unfreeze, true},
    {"train.ema_decay", check_ema, true},
    {"train.on_nonfinite", check_rollback, true},
    {"train.max_nonfinite", check_max_nonfinite},
    {"train.rollback_lr_factor", check_rollback_factor},
    {"checkpoint.keep_every_steps", check_keep_every, true},
    {"checkpoint.monitor", check_ranking},
    {"checkpoint.monitor", check_ranking_datasets},
    {"eval.every_steps", check_interval, true},
    {"eval.use_ema", check_use_ema_datasets},
    {"eval.use_ema", check_average_evaluation},
    {"eval.on_best_command", check_command_datasets},
    {"eval.early_stopping", check_stopping_datasets},
    {"eval.early_stopping.patience_steps", check_patience_steps, true},
    {"eval.early_stopping.min_delta", check_min_delta},
};

}  // namespace

std::vector<ConfigWarning> find_config_warnings(const Config& config) {
  std::vector<ConfigWarning> warnings;
  const bool knows_steps = !has_unresolved_epochs(config);  // else they are found with the data
  for (const Check& check : kChecks)
    if (!knows_steps && check.compares_steps)
      continue;
    else if (auto message = check.find(config))
      warnings.push_back({std::string(check.key), *std::move(message)});
  return warnings;
}

std::vector<ConfigWarning> new_config_warnings(const Config& previous, const Config& config) {
  const std::vector<ConfigWarning> known = find_config_warnings(previous);
  std::vector<ConfigWarning> warnings = find_config_warnings(config);
  std::erase_if(warnings, [&known](const ConfigWarning& warning) {
    return std::ranges::find(known, warning.key, &ConfigWarning::key) != known.end();
  });
  return warnings;
}

}  // namespace stoker::config
