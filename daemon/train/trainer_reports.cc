// What the trainer learns from the device, and tells of it: rows, verdicts, the status.
#include <utility>

#include "daemon/train/schedule.h"
#include "daemon/train/trainer.h"

namespace stoker::train {

using std::chrono::nanoseconds;

Result<bool> Trainer::report_and_save() {
  STOKER_RETURN_IF_ERROR(check_saving());
  const bool is_last = state_.step == config_.train.max_steps;
  const bool report_due = is_last || state_.step % config_.metrics.log_every_steps == 0;
  if (report_due || save_due() != SaveReason::kNone) {
    look(report_due ? std::optional(begin_row()) : std::nullopt);
    // What is saved must be known to be fine.
    if (is_last || save_due() != SaveReason::kNone) engine_->settle();
  }
  STOKER_ASSIGN_OR_RETURN(const FiniteGuard::Verdict verdict, verdict_);
  if (verdict == FiniteGuard::Verdict::kRollBack) return false;
  // The last step is saved by save_last(), which waits for a free snapshot.
  if (!is_last) STOKER_RETURN_IF_ERROR(save_if_due());
  return verdict_.ok() && *verdict_ == FiniteGuard::Verdict::kFine;
}

// Asked again, because of the loss that was just reported.
Status Trainer::save_if_due() {
  const SaveReason reason = save_due();
  if (reason == SaveReason::kNone) return {};
  STOKER_ASSIGN_OR_RETURN(const FiniteGuard::Verdict verdict, look_and_wait());
  if (verdict == FiniteGuard::Verdict::kFine) save_by_rule(reason);
  return {};
}

void Trainer::look(std::optional<metrics::TrainRow> maybe_row) {
  const bool ends_interval = maybe_row.has_value();
  engine_->read(guard_.values(), [this, row = std::move(maybe_row), step = state_.step,
                                  loss_steps = state_.loss_steps](auto values) mutable {
    const auto found = guard_.judge(values, step);
    if (!verdict_.ok() || *verdict_ != FiniteGuard::Verdict::kFine) return;
    if (!found.ok()) {
      verdict_ = found.status();
    } else if (found->verdict != FiniteGuard::Verdict::kFine) {
      verdict_ = found->verdict;
    } else if (row) {
      finish_row(*row, *found, loss_steps - found->skipped);
    } else {
      state_.loss_steps -= found->skipped;
    }
  });
  guard_.begin_anew();
  if (!ends_interval) return;
  state_.loss_sum.zero_();
  state_.loss_steps = 0;
}

Result<FiniteGuard::Verdict> Trainer::look_and_wait() {
  if (!engine_) return FiniteGuard::Verdict::kFine;  // nothing was done yet
  look(std::nullopt);
  engine_->settle();
  return verdict_;
}

// What is known without the device.
metrics::TrainRow Trainer::begin_row() {
  const nanoseconds now = links_.clock.monotonic();
  const auto batch = static_cast<uint64_t>(config_.train.micro_batch_size *
                                           config_.train.gradient_accumulation_steps);
  metrics::TrainRow row;
  row.step = state_.step;
  row.epoch = links_.plan.epoch_of(state_.ticket);
  row.lr = state_.lr_scale * train::learning_rate(config_.scheduler, config_.optimizer.lr(),
                                                  state_.step - 1, config_.train.max_steps);
  row.samples = state_.step * batch;
  interval_.add_to(row, now, batch);
  row.degraded = links_.writer.is_degraded() ? 1 : 0;
  row.wall = to_iso8601(links_.clock.wall());
  interval_ = Interval{.started = now};
  note_use();
  return row;
}

void Trainer::note_use() {
  const cuda::DeviceUse use = engine_->use();
  if (const uint64_t works = use.works - used_.works; works > 0)
    status_.device_ms = (use.work_ms - used_.work_ms) / static_cast<double>(works) *
                        static_cast<double>(config_.train.gradient_accumulation_steps);
  status_.memory.device_bytes = use.allocated_bytes;
  status_.memory.device_reserved_bytes = use.reserved_bytes;
  status_.memory.device_peak_bytes = use.peak_bytes;
  used_ = use;
}

void Trainer::finish_row(metrics::TrainRow& row, const FiniteGuard::Finding& found,
                         int64_t loss_steps) {
  // Not a number where all steps were skipped.
  row.loss = found.loss_sum / static_cast<double>(loss_steps);
  row.grad_norm = found.grad_norm;
  if (guard_.counts()) row.maybe_skipped_steps = state_.skipped_steps;
  row.maybe_loss_scale = found.maybe_loss_scale;
  links_.metrics_bytes = links_.report(row);

  state_.loss_trend.add(row.loss);
  status_.loss = row.loss;
  status_.samples_per_s = row.samples_per_s;
  status_.step_ms = row.step_ms;
  status_.feed.wait_ms = row.feed_wait_ms;
  status_.eta_s = static_cast<double>(config_.train.max_steps - row.step) * row.step_ms / 1000.0;
  publish(activity());
}

control::TrainerState Trainer::activity() const {
  const auto stats = links_.writer.stats();
  if (stats.degraded) return control::TrainerState::kDegraded;
  return stats.in_flight ? control::TrainerState::kSaving : control::TrainerState::kTraining;
}

void Trainer::publish(control::TrainerState activity) {
  const bool standing = paused_ && activity != control::TrainerState::kStopping;
  status_.state = standing ? control::TrainerState::kPaused : activity;
  status_.step = state_.step;
  status_.epoch = links_.plan.epoch_of(state_.ticket);
  status_.lr = learning_rate();
  status_.skipped_steps = state_.skipped_steps;
  status_.rollbacks = state_.rollbacks;
  links_.board.publish(status_);
  links_.board.note_progress();
}

}  // namespace stoker::train
