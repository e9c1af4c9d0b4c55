#include "daemon/train/trainer.h"

#include <cmath>
#include <utility>

#include <c10/util/Exception.h>

#include "daemon/train/schedule.h"
#include "shared/base/log.h"

namespace stoker::train {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
constexpr milliseconds kLook{100};  // no wait is longer without a look at the stop token

double ms(nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

Status status_of(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr)
    return Status(Code::kOutOfMemory, text);
  if (text.find("CUDA error") != std::string::npos) return Status(Code::kDeviceLost, text);
  return Status(Code::kInternal, text);
}

}  // namespace

Trainer::Trainer(const config::Config& config, TrainingState& state, TrainerLinks links)
    : config_(config),
      state_(state),
      links_(std::move(links)),
      step_(state.model(), state.task(), state.optimizer(), config.train.accumulate,
            config.train.precision == "bf16"),
      guard_(config.train, state),
      triggers_(config.checkpoint, links_.save_soon),
      watch_(links_.watch, links_.clock, state.device()) {
  status_.steps = config.train.steps;
  status_.device = state.device().str();
  status_.step = state.step;
  status_.loss = std::nan("");
  status_.lr = learning_rate();
  status_.checkpoint.last_step = state.step;
  if (state.step > 0) maybe_submitted_step_ = state.step;  // resumed from it
}

Result<Trainer::Outcome> Trainer::run(std::stop_token stop) {
  interval_.started = links_.clock.monotonic();
  triggers_.start(interval_.started);
  links_.board.set_step(state_.step);
  publish(control::TrainerState::kTraining);
  try {
    while (state_.step < config_.train.steps) {
      watch_.begin_step();
      answer_requests(stop);
      wait_while_paused(stop);
      if (stop_asked_ || stop.stop_requested()) break;
      STOKER_ASSIGN_OR_RETURN(const bool leaves, leave_for_new_data());
      if (leaves) {
        watch_.finish("the data grew, and training begins anew with it");
        return Outcome::kNewData;
      }
      STOKER_ASSIGN_OR_RETURN(const bool stepped, do_step(stop));
      if (!stepped) break;
      STOKER_ASSIGN_OR_RETURN(const bool fine, report_and_save());
      if (!fine) {
        refuse_saving(Status(Code::kCancelled, "the run goes back to its last checkpoint"));
        watch_.finish("the run went back to its last checkpoint");
        return Outcome::kRollBack;
      }
      watch_.end_step(state_.step);
    }
    return end_run(stop);
  } catch (const c10::Error& error) {
    return status_of(error).with_context("step " + std::to_string(state_.step + 1));
  }
}

// A state that cannot be saved now goes on with the data it has.
Result<bool> Trainer::leave_for_new_data() {
  if (!links_.is_new_data(state_.ticket)) return false;
  STOKER_ASSIGN_OR_RETURN(const FiniteGuard::Verdict verdict, guard_.look());
  if (verdict != FiniteGuard::Verdict::kFine) return false;
  publish(control::TrainerState::kSaving);
  watch_.finish("more data joined");
  STOKER_RETURN_IF_ERROR(save_last(false));
  return true;
}

Result<Trainer::Outcome> Trainer::end_run(std::stop_token stop) {
  const bool finished = state_.step >= config_.train.steps;
  publish(finished ? control::TrainerState::kSaving : control::TrainerState::kStopping);
  STOKER_ASSIGN_OR_RETURN(const FiniteGuard::Verdict verdict, guard_.look());
  if (verdict == FiniteGuard::Verdict::kFine) {
    STOKER_RETURN_IF_ERROR(save_last(stop.stop_requested()));
  } else {
    log_warn("the last steps are not saved",
             {{"step", state_.step}, {"reason", "loss or gradient not finite"}});
  }
  watch_.finish("training ended");
  links_.mailbox.close();
  return finished ? Outcome::kFinished : Outcome::kStopped;
}

// ---- Requests

void Trainer::answer_requests(std::stop_token stop) {
  for (Request& request : links_.mailbox.take()) handle(request);
  if (!save_requests_.empty() && !stop.stop_requested()) save_for_requests();
}

void Trainer::save_for_requests() {
  const auto verdict = guard_.look();
  if (verdict.ok() && *verdict == FiniteGuard::Verdict::kFine) {
    (void)try_save();
  } else {
    refuse_saving(Status(Code::kCorrupt, "the loss or its gradient is not a number at step " +
                                             std::to_string(state_.step)));
  }
}

void Trainer::refuse_saving(const Status& why) {
  for (const Request& request : std::exchange(save_requests_, {})) answer(request, why);
}

void Trainer::handle(Request& request) {
  const std::string at_step = "\"step\":" + std::to_string(state_.step);
  switch (request.kind) {
    case Request::Kind::kPause:
      paused_ = true;
      return answer(request, "{" + at_step + ",\"state\":\"paused\"}");
    case Request::Kind::kResume:
      paused_ = false;
      return answer(request, "{" + at_step + ",\"state\":\"training\"}");
    case Request::Kind::kStop:
      stop_asked_ = true;
      return answer(request, "{" + at_step + ",\"state\":\"stopping\"}");
    case Request::Kind::kCheckpoint:
      save_requests_.push_back(std::move(request));
      return;
    case Request::Kind::kProfile:
      return watch_.profile(std::move(request));
    case Request::Kind::kSetLr: {
      if (learning_rate() == 0)
        return answer(request, Status(Code::kInvalidArgument,
                                      "the schedule's learning rate is 0 at step " +
                                          std::to_string(state_.step) + "; nothing scales it"));
      state_.lr_scale *= request.value / learning_rate();
      status_.lr = learning_rate();
      char text[96];
      std::snprintf(text, sizeof text, "{%s,\"lr\":%.17g}", at_step.c_str(), status_.lr);
      log_info("learning rate set",
               {{"step", state_.step}, {"lr", status_.lr}, {"scale", state_.lr_scale}});
      return answer(request, std::string(text));
    }
  }
}

void Trainer::wait_while_paused(std::stop_token stop) {
  if (!paused_) return;
  log_info("paused", {{"step", state_.step}});
  publish(control::TrainerState::kPaused);
  const nanoseconds began = links_.clock.monotonic();
  while (paused_ && !stop_asked_ && !stop.stop_requested()) {
    links_.mailbox.wait(kLook);
    answer_requests(stop);
  }
  interval_.paused += links_.clock.monotonic() - began;
  log_info("resumed", {{"step", state_.step}});
  watch_.begin_step();
  publish(control::TrainerState::kTraining);
}

// ---- One step

double Trainer::learning_rate() const {
  return state_.lr_scale * train::learning_rate(config_.schedule, config_.optimizer.lr, state_.step,
                                                config_.train.steps);
}

Result<std::optional<ring::ReadyBatch>> Trainer::next_batch(std::stop_token stop) {
  const PhaseScope waiting(watch_.maybe_observer(), Phase::kFeedWait);
  const nanoseconds began = links_.clock.monotonic();
  while (true) {
    auto batch = links_.ring.pop(kLook);
    interval_.waited += batch.ok() ? links_.clock.monotonic() - began : nanoseconds(0);
    if (batch.ok()) return std::optional(*batch);
    if (batch.status().code() == Code::kClosed) return std::optional<ring::ReadyBatch>();
    if (batch.status().code() != Code::kTimedOut) return batch.status();
    if (stop.stop_requested()) return std::optional<ring::ReadyBatch>();
    // A starved trainer still obeys: a stop is taken here, the rest between steps.
    for (Request& request : links_.mailbox.take()) handle(request);
    if (stop_asked_) return std::optional<ring::ReadyBatch>();
  }
}

task::Batch Trainer::tensors_of(const ring::ReadyBatch& batch) {
  const PhaseScope copying(watch_.maybe_observer(), Phase::kCopy);
  task::Batch tensors = batch_tensors(links_.ring.layout(), batch.slot, state_.device());
  return state_.task().mixed(std::move(tensors), config_.run.seed, batch.ticket);
}

Result<bool> Trainer::do_step(std::stop_token stop) {
  step_.set_observer(watch_.maybe_observer());
  std::optional<TrainingState::Mark> began;
  if (config_.train.accumulate > 1) began = TrainingState::mark();
  for (int64_t part = 0; part < config_.train.accumulate; ++part) {
    STOKER_ASSIGN_OR_RETURN(const auto batch, next_batch(stop));
    if (!batch) {
      // A step half done is not a step: it is taken back, and the ticket stays where it began.
      if (part > 0) {
        TrainingState::rewind(*began);
        step_.drop();
      }
      return false;
    }
    step_.add(tensors_of(*batch));
    links_.ring.release(batch->ticket);
    links_.board.note_progress();
  }
  guard_.finish(step_, learning_rate());
  ++state_.step;
  state_.ticket += static_cast<uint64_t>(config_.train.accumulate);
  ++interval_.steps;
  links_.board.set_step(state_.step);
  return true;
}

// ---- Reports

Result<bool> Trainer::report_and_save() {
  STOKER_RETURN_IF_ERROR(check_saving());
  const bool is_last = state_.step == config_.train.steps;
  const bool report_due = is_last || state_.step % config_.metrics.every_steps == 0;
  if (!report_due && save_due() == SaveReason::kNone) return true;
  STOKER_ASSIGN_OR_RETURN(const FiniteGuard::Verdict verdict, guard_.look());
  if (verdict == FiniteGuard::Verdict::kRollBack) return false;
  if (report_due) report();
  // The last step is saved by save_last(), which waits for a free snapshot. Asked again, because of
  // the loss that was just reported.
  if (!is_last) save_by_rule(save_due());
  return true;
}

void Trainer::report() {
  const nanoseconds now = links_.clock.monotonic();
  const auto batch = static_cast<uint64_t>(config_.train.batch * config_.train.accumulate);
  metrics::TrainRow row;
  row.step = state_.step;
  row.epoch = links_.plan.epoch_of(state_.ticket);
  // Not a number where all steps were skipped.
  row.loss = state_.loss_sum.item<double>() / static_cast<double>(state_.loss_steps);
  row.lr = state_.lr_scale * train::learning_rate(config_.schedule, config_.optimizer.lr,
                                                  state_.step - 1, config_.train.steps);
  row.grad_norm = guard_.grad_norm().item<double>();
  row.samples = state_.step * batch;
  interval_.add_to(row, now, batch);
  row.degraded = links_.writer.is_degraded() ? 1 : 0;
  row.wall = to_iso8601(links_.clock.wall());
  links_.metrics_bytes = links_.report(row);

  state_.loss_trend.add(row.loss);
  status_.loss = row.loss;
  status_.samples_per_s = row.samples_per_s;
  status_.step_ms = row.step_ms;
  status_.feed.wait_ms = row.feed_wait_ms;
  status_.eta_s = static_cast<double>(config_.train.steps - state_.step) * row.step_ms / 1000.0;
  publish(activity());
  state_.loss_sum.zero_();
  state_.loss_steps = 0;
  interval_ = Interval{.started = now};
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

// ---- Checkpoints

SaveReason Trainer::save_due() {
  return triggers_.due(state_.step, links_.clock.monotonic(), state_.loss_trend,
                       links_.writer.is_degraded());
}

void Trainer::save_by_rule(SaveReason reason) {
  if (reason == SaveReason::kNone || try_save() || reason != SaveReason::kSteps) return;
  links_.writer.count_skipped();
  // Once for each that is in flight: where saving is slow, every interval may skip.
  if (!std::exchange(skip_said_, true)) {
    log_warn("checkpoint skipped",
             {{"step", state_.step}, {"reason", "the one before is still being written"}});
  }
}

Status Trainer::check_saving() const {
  if (config_.checkpoint.on_failure != "stop" || !links_.writer.is_degraded()) return {};
  return Status(Code::kIoError, "checkpoints fail and checkpoint.on_failure is stop: " +
                                    links_.writer.stats().last_error);
}

bool Trainer::try_save() {
  if (maybe_submitted_step_ == state_.step && !links_.writer.stats().degraded) {
    // This very state is saved, or being saved. Whoever asked gets the answer that it is.
    if (links_.writer.stats().in_flight) return false;
    for (const Request& request : std::exchange(save_requests_, {})) {
      answer(request, "{\"step\":" + std::to_string(state_.step) + ",\"saved\":\"before\"}");
    }
    return true;
  }
  writer::Snapshot* const snapshot = links_.writer.try_begin();
  if (snapshot == nullptr) return false;
  const PhaseScope snapping(watch_.maybe_observer(), Phase::kSnapshot);
  const nanoseconds began = links_.clock.monotonic();
  snapshot->manifest() = links_.manifest;
  state_.quarantined = links_.quarantined();
  state_.loss_trend.note_saved();
  state_.capture(*snapshot);
  snapshot->manifest().epoch = links_.plan.epoch_of(state_.ticket);
  snapshot->manifest().metrics_bytes = links_.metrics_bytes;
  const nanoseconds stall = links_.clock.monotonic() - began;
  interval_.stalled += stall;
  status_.checkpoint.stall_ms = ms(stall);
  maybe_submitted_step_ = state_.step;
  skip_said_ = false;
  triggers_.note_saved(links_.clock.monotonic());
  links_.manifest.parent = checkpoint::CheckpointStore::name_of(state_.step);
  links_.writer.submit(
      [waiting = std::exchange(save_requests_, {})](Result<checkpoint::Manifest> result) {
        for (const Request& request : waiting) {
          if (result.ok()) {
            answer(request, "{\"step\":" + std::to_string(result->step) + "}");
          } else {
            answer(request, result.status());
          }
        }
      });
  publish(control::TrainerState::kSaving);
  return true;
}

Status Trainer::save_last(bool hurried) {
  if (state_.step == 0) return {};  // nothing was learned
  while (!links_.writer.wait_idle(kLook)) links_.board.note_progress();
  if (maybe_submitted_step_ != state_.step || links_.writer.stats().degraded) {
    if (!try_save())
      return Status(Code::kInternal, "the checkpoint writer refuses the last snapshot");
    while (!links_.writer.wait_idle(kLook)) links_.board.note_progress();
  }
  const auto stats = links_.writer.stats();
  if (!stats.degraded) return {};
  return Status(Code::kIoError, std::string("the last state could not be saved") +
                                    (hurried ? " while stopping" : "") + ": " + stats.last_error);
}

}  // namespace stoker::train
