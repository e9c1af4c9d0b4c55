#include "daemon/train/trainer.h"

#include <cmath>
#include <new>
#include <utility>

#include <c10/util/Exception.h>

#include "daemon/train/failure.h"
#include "daemon/train/make_engine.h"
#include "daemon/train/schedule.h"
#include "shared/base/log.h"

namespace stoker::train {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
constexpr milliseconds kSoon{1};    // between looks at the device
constexpr milliseconds kLook{100};  // no wait is longer without a look at the stop token

}  // namespace

Trainer::Trainer(const config::Config& config, TrainingState& state, TrainerLinks links)
    : config_(config),
      state_(state),
      links_(std::move(links)),
      step_(state.model(), state.task(), state.optimizer(), config.train, state.maybe_loss_scale()),
      guard_(config.train, state),
      triggers_(config.checkpoint, links_.save_soon),
      watch_(links_.watch, links_.clock, state.model(), state.device()) {
  status_.steps = config.train.max_steps;
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
    STOKER_RETURN_IF_ERROR(open_engine());
    while (state_.step < config_.train.max_steps) {
      watch_.begin_step();
      answer_requests(stop);
      wait_while_paused(stop);
      if (stop_asked_ || stop.stop_requested()) break;
      STOKER_ASSIGN_OR_RETURN(const bool leaves, leave_for_new_data());
      if (leaves) return Outcome::kNewData;
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
    return failed(error);
  } catch (const std::bad_alloc& error) {
    return failed(error);
  }
}

// A state that cannot be saved now goes on with the data it has.
Result<bool> Trainer::leave_for_new_data() {
  if (!links_.is_new_data(state_.ticket)) return false;
  STOKER_ASSIGN_OR_RETURN(const FiniteGuard::Verdict verdict, look_and_wait());
  if (verdict != FiniteGuard::Verdict::kFine) return false;
  publish(control::TrainerState::kSaving);
  watch_.finish("more data joined");
  STOKER_RETURN_IF_ERROR(save_last(false));
  return true;
}

Status Trainer::open_engine() {
  const auto work = [this](const task::Batch& batch, Portion portion) {
    this->work(batch, portion);
  };
  const auto prepare = [this](task::Batch batch, uint64_t ticket) {
    const PhaseScope copying(watch_.maybe_observer(), Phase::kCopy);
    return state_.task().mixed(std::move(batch), config_.run.seed, ticket);
  };
  const auto release = [this](uint64_t ticket) { links_.ring.release(ticket); };
  const StepEngine::Calls calls{prepare, work, release};
  auto made = links_.make_engine
                  ? links_.make_engine(calls)
                  : make_engine(config_.train, state_.device(), links_.ring,
                                links_.maybe_shapes.value_or(links_.ring.layout()), calls);
  if (!made.ok()) return made.status();
  engine_ = *std::move(made);
  return {};
}

// Nothing is saved after this: the device may be in no state to copy from, and the last checkpoint
// is whole.
Status Trainer::failed(const std::exception& error) const {
  const Status status = status_of_failure(error);
  const std::string at = "step " + std::to_string(state_.step + 1);
  if (status.code() != Code::kOutOfMemory) return status.with_context(at);
  return Status(Code::kOutOfMemory, at + ": out of memory: " + status.message() + "; " +
                                        memory_of(state_) + "; " + what_saves_memory(config_));
}

Result<Trainer::Outcome> Trainer::end_run(std::stop_token stop) {
  const bool finished = state_.step >= config_.train.max_steps;
  publish(finished ? control::TrainerState::kSaving : control::TrainerState::kStopping);
  STOKER_ASSIGN_OR_RETURN(const FiniteGuard::Verdict verdict, look_and_wait());
  if (verdict == FiniteGuard::Verdict::kFine) {
    STOKER_RETURN_IF_ERROR(save_last(stop.stop_requested()));
  } else {
    log_warn("final checkpoint skipped",
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
  const auto verdict = look_and_wait();
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
    case Request::Kind::kTap:
      return watch_.tap(std::move(request), state_.step);
    case Request::Kind::kSetLr: {
      if (learning_rate() == 0)
        return answer(request, Status(Code::kInvalidArgument,
                                      "the schedule's learning rate is 0 at step " +
                                          std::to_string(state_.step) + "; nothing scales it"));
      state_.lr_scale *= request.value / learning_rate();
      status_.lr = learning_rate();
      char text[96];
      std::snprintf(text, sizeof text, "{%s,\"lr\":%.17g}", at_step.c_str(), status_.lr);
      log_info("learning rate changed",
               {{"step", state_.step}, {"lr", status_.lr}, {"lr_scale", state_.lr_scale}});
      return answer(request, std::string(text));
    }
  }
}

void Trainer::wait_while_paused(std::stop_token stop) {
  if (!paused_) return;
  log_info("training paused", {{"step", state_.step}});
  publish(control::TrainerState::kPaused);
  const nanoseconds began = links_.clock.monotonic();
  while (paused_ && !stop_asked_ && !stop.stop_requested()) {
    links_.mailbox.wait(kLook);
    answer_requests(stop);
  }
  interval_.paused += links_.clock.monotonic() - began;
  log_info("training resumed", {{"step", state_.step}});
  watch_.begin_step();
  publish(control::TrainerState::kTraining);
}

// ---- One step

double Trainer::learning_rate() const {
  return state_.lr_scale * train::learning_rate(config_.scheduler, config_.optimizer.lr(),
                                                state_.step, config_.train.max_steps);
}

Result<std::optional<ring::ReadyBatch>> Trainer::next_batch(std::stop_token stop) {
  const PhaseScope waiting(watch_.maybe_observer(), Phase::kFeedWait);
  const nanoseconds began = links_.clock.monotonic();
  while (true) {
    // While the device still reads slots that the readers wait for, often.
    auto batch = links_.ring.pop(engine_->poll() ? kSoon : kLook);
    interval_.waited += batch.ok() ? links_.clock.monotonic() - began : nanoseconds(0);
    if (batch.ok() && links_.may_use && !links_.may_use(*batch))
      return std::optional<ring::ReadyBatch>();
    if (batch.ok()) return std::optional(*batch);
    if (batch.status().code() == Code::kClosed) return std::optional<ring::ReadyBatch>();
    if (batch.status().code() != Code::kTimedOut) return batch.status();
    if (stop.stop_requested()) return std::optional<ring::ReadyBatch>();
    // A starved trainer still obeys: a stop is taken here, the rest between steps.
    for (Request& request : links_.mailbox.take()) handle(request);
    if (stop_asked_) return std::optional<ring::ReadyBatch>();
  }
}

Result<bool> Trainer::do_step(std::stop_token stop) {
  watch_.enter_step(state_.step + 1);
  step_.set_observer(watch_.maybe_observer());
  std::optional<TrainingState::Mark> began;
  if (config_.train.gradient_accumulation_steps > 1) began = state_.mark();
  for (int64_t part = 0; part < config_.train.gradient_accumulation_steps; ++part) {
    STOKER_ASSIGN_OR_RETURN(const auto batch, next_batch(stop));
    if (!batch) {
      // A step half done is not a step: it is taken back, and the ticket stays where it began.
      if (part > 0) {
        state_.rewind(*began);
        step_.drop();
      }
      return false;
    }
    if (state_.step == 0 && part == 0 && links_.see_first_batch) links_.see_first_batch(*batch);
    const Portion portion{part == 0, part + 1 == config_.train.gradient_accumulation_steps,
                          watch_.maybe_observer() != nullptr};
    if (portion.is_last) state_.optimizer().set_lr(learning_rate());
    engine_->run(*batch, portion);
    links_.board.note_progress();
  }
  ++state_.loss_steps;
  ++state_.step;
  state_.ticket += static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
  ++interval_.steps;
  links_.board.set_step(state_.step);
  return true;
}

void Trainer::work(const task::Batch& batch, Portion portion) {
  step_.add(batch, portion.is_first);
  if (!portion.is_last) return;
  guard_.finish(step_);
  if (state_.maybe_average() != nullptr) state_.maybe_average()->update();
}

}  // namespace stoker::train
