// The reporting part of Trainer: device values, metrics and status.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "daemon/train/trainer.h"

namespace stoker::train {

using std::chrono::nanoseconds;

namespace {

// Not the CPU, whose memory is that of the process.
bool has_memory(const cuda::DeviceUsage& use) { return use.reserved_bytes > 0; }

void add_device_memory(const cuda::DeviceUsage& device, ResourceUse& use) {
  if (!has_memory(device)) return;
  use[Resource::kDeviceAllocated] = static_cast<double>(device.allocated_bytes);
  use[Resource::kDeviceReserved] = static_cast<double>(device.reserved_bytes);
  use[Resource::kDevicePeakAllocated] = static_cast<double>(device.peak_bytes);
}

}  // namespace

void Trainer::Interval::add_to(metrics::TrainMetrics& metrics, nanoseconds now,
                               uint64_t batch) const {
  const auto ms = [](nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  const double busy_ms = ms(now - started - paused);
  const auto count = static_cast<double>(steps);
  metrics.samples_per_second = busy_ms > 0 ? 1e3 * count * static_cast<double>(batch) / busy_ms : 0;
  metrics.step_time_ms = busy_ms / count;
  metrics.data_wait_ms = ms(waited) / count;
  metrics.checkpoint_stall_ms = ms(stalled);
}

Result<bool> Trainer::report_and_save() {
  STOKER_RETURN_IF_ERROR(checkpointing_.check());
  const bool is_last = state_.step == config_.train.max_steps;
  const bool report_due = is_last || state_.step % config_.metrics.log_every_steps == 0;
  // The ranks of a group must find a nonfinite value at the same step.
  if (report_due || ranks_->shares_steps() || checkpointing_.due() != SaveReason::kNone) {
    read_device_metrics(report_due ? std::optional(begin_metrics()) : std::nullopt);
    // The state must be known to be finite before it is saved. The ranks of a group save the last one together.
    if (is_last)
      STOKER_RETURN_IF_ERROR(check_state(Checked::kByAllRanks).status());
    else if (checkpointing_.due() != SaveReason::kNone)
      engine_->synchronize();
  }
  STOKER_ASSIGN_OR_RETURN(const NonfiniteGuard::NonfiniteAction action, nonfinite_action_);
  if (action == NonfiniteGuard::NonfiniteAction::kRollBack) return false;
  // The last step is saved by Checkpointing::save_last(), which waits for a free snapshot.
  if (!is_last) STOKER_RETURN_IF_ERROR(save_if_due());
  return nonfinite_action_.ok() && *nonfinite_action_ == NonfiniteGuard::NonfiniteAction::kContinue;
}

// Evaluates the triggers again, because the loss that was just reported can trigger a save.
Status Trainer::save_if_due() {
  const SaveReason reason = checkpointing_.due();
  if (reason == SaveReason::kNone) return {};
  STOKER_ASSIGN_OR_RETURN(const NonfiniteGuard::NonfiniteAction action,
                          read_device_metrics_blocking());
  if (action == NonfiniteGuard::NonfiniteAction::kContinue) checkpointing_.save(reason, *engine_);
  return {};
}

void Trainer::read_device_metrics(std::optional<metrics::TrainMetrics> maybe_metrics) {
  const bool ends_interval = maybe_metrics.has_value();
  engine_->submit([this] { guard_.check_buffers(); });
  engine_->read(guard_.values(), [this, metrics = std::move(maybe_metrics), step = state_.step,
                                  loss_steps = state_.loss_steps](auto values) mutable {
    const auto found = guard_.evaluate(values, step);
    if (!nonfinite_action_.ok() || *nonfinite_action_ != NonfiniteGuard::NonfiniteAction::kContinue)
      return;
    if (!found.ok()) {
      nonfinite_action_ = found.status();
    } else if (found->action != NonfiniteGuard::NonfiniteAction::kContinue) {
      nonfinite_action_ = found->action;
    } else if (metrics) {
      finish_metrics(*metrics, *found, loss_steps - found->skipped - found->empty);
    } else {
      state_.loss_steps -= found->skipped + found->empty;
    }
  });
  engine_->submit([this, ends_interval] {
    guard_.reset_counts();
    if (ends_interval) state_.reset_interval();
  });
  if (ends_interval) state_.loss_steps = 0;
}

Result<NonfiniteGuard::NonfiniteAction> Trainer::read_device_metrics_blocking(bool is_alone) {
  if (!engine_) return NonfiniteGuard::NonfiniteAction::kContinue;  // no step was run
  read_device_metrics(std::nullopt);
  return check_state(is_alone || (ranks_->shares_steps() && !is_sharded_) ? Checked::kByThisRank
                                                                          : Checked::kByAllRanks);
}

// A rank that checks alone saves nothing, and cannot roll back alone: it fails.
Result<NonfiniteGuard::NonfiniteAction> Trainer::check_state(Checked checked) {
  engine_->synchronize();
  if (!nonfinite_action_.ok() || *nonfinite_action_ != NonfiniteGuard::NonfiniteAction::kContinue)
    return nonfinite_action_;
  std::string found = state_.first_nonfinite();
  if (checked == Checked::kByAllRanks) {
    STOKER_ASSIGN_OR_RETURN(found, ranks_->first_nonfinite(std::move(found)));
  }
  const auto action = guard_.evaluate_state(found, state_.step);
  if (checked == Checked::kByAllRanks)
    nonfinite_action_ = action;
  else if (action.ok() && *action == NonfiniteGuard::NonfiniteAction::kRollBack)
    return nonfinite_action_ = nonfinite_error(found, state_.step);
  return action;
}

// Fills the fields that do not need the device.
metrics::TrainMetrics Trainer::begin_metrics() {
  const nanoseconds now = clock_.monotonic();
  const auto batch = static_cast<uint64_t>(config_.train.micro_batch_size *
                                           config_.train.gradient_accumulation_steps);
  metrics::TrainMetrics metrics;
  metrics.step = state_.step;
  metrics.epoch = source_.plan().epoch_of(state_.ticket);
  metrics.lr = step_lr_;
  metrics.samples_seen =
      run::batch_size_at(state_.batch_sizes, state_.step, config_.train).samples_after(state_.step);
  interval_.add_to(metrics, now, batch);
  metrics.degraded = writer_.is_degraded() ? 1 : 0;
  metrics.wall_time = to_iso8601(clock_.wall());
  remaining_.add(interval_.steps,
                 static_cast<double>(interval_.steps) * metrics.step_time_ms / 1e3);
  const double stall_ms = metrics.checkpoint_stall_ms / static_cast<double>(interval_.steps);
  interval_ = Interval{.started = now};
  record_device_usage();
  ranks_->report(metrics, stall_ms, status_.group);
  measure_resources(now, metrics);
  return metrics;
}

// For the other ranks.
group::RankReport Trainer::own_report() const {
  const auto ms = [](nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  group::RankReport own{.compute_ms = ms(clock_.monotonic() - step_start_),
                        .data_wait_ms = ms(interval_.waited - waited_before_step_)};
  for (size_t i = 0; i < own.use.size(); ++i)
    if (const double value = status_.resources.values()[i]; std::isfinite(value))
      own.use[i] = value;
  return own;
}

void Trainer::measure_resources(nanoseconds now, metrics::TrainMetrics& metrics) {
  if (!meter_.is_due(now)) return;
  ResourceUse& own = status_.resources;
  own = meter_.measure(now, source_.worker_use());
  add_device_memory(device_usage_, own);
  const double work_ms =
      device_usage_.work_ms - std::exchange(measured_work_ms_, device_usage_.work_ms);
  const double elapsed_ms =
      std::chrono::duration<double, std::milli>(now - std::exchange(measured_, now)).count();
  if (has_memory(device_usage_)) own[Resource::kDeviceBusy] = std::min(1.0, work_ms / elapsed_ms);
  metrics.resources = own;
  const auto& ranks = status_.group.ranks;
  const auto own_rank = static_cast<size_t>(ranks_->share().rank);
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (size_t i = 0; rank != own_rank && i < kProcessResources; ++i)
      if (double& sum = metrics.resources.values()[i]; !std::isnan(sum)) sum += ranks[rank].use[i];
}

void Trainer::record_device_usage() {
  const cuda::DeviceUsage use = engine_->device_usage();
  if (const uint64_t works = use.works - device_usage_.works; works > 0)
    status_.device_time_ms = (use.work_ms - device_usage_.work_ms) / static_cast<double>(works) *
                             static_cast<double>(ranks_->share().length());
  device_usage_ = use;
  add_device_memory(use, status_.resources);
}

void Trainer::finish_metrics(metrics::TrainMetrics& metrics,
                             const NonfiniteGuard::NonfiniteReport& found, int64_t loss_steps) {
  // NaN if all steps were skipped.
  metrics.loss = found.loss_sum / static_cast<double>(loss_steps);
  for (size_t i = 0; i < found.metrics.size(); ++i)
    metrics.metrics.emplace_back(state_.training_metrics()[i], found.metrics[i]);
  metrics.grad_norm = found.grad_norm;
  if (guard_.counts()) metrics.maybe_skipped_steps = state_.skipped_steps;
  metrics.maybe_loss_scale = found.maybe_loss_scale;
  checkpointing_.set_metrics_bytes(sink_.report(metrics));

  state_.loss_trend.add(metrics.loss);
  status_.loss = metrics.loss;
  status_.training_metrics.clear();
  for (const auto& [name, value] : metrics.metrics)
    status_.training_metrics.push_back({.name = name, .value = value});
  status_.samples_per_second = metrics.samples_per_second;
  status_.step_time_ms = metrics.step_time_ms;
  status_.feed.data_wait_ms = metrics.data_wait_ms;
  status_.eta_seconds = remaining_.seconds(config_.train.max_steps - metrics.step);
  publish(activity());
}

control::TrainerState Trainer::activity() const {
  const auto stats = writer_.stats();
  if (stats.degraded) return control::TrainerState::kDegraded;
  return stats.in_flight ? control::TrainerState::kSaving : control::TrainerState::kTraining;
}

void Trainer::publish(control::TrainerState activity) {
  const bool is_paused = channels_.is_paused && activity != control::TrainerState::kStopping;
  status_.state = is_paused ? control::TrainerState::kPaused : activity;
  status_.step = state_.step;
  status_.epoch = source_.plan().epoch_of(state_.ticket);
  status_.lr = learning_rate();
  status_.skipped_steps = state_.skipped_steps;
  status_.rollbacks = state_.rollbacks;
  channels_.board.publish(status_);
  channels_.board.record_progress();
}

}  // namespace stoker::train
