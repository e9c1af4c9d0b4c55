// The group part of Trainer: what the ranks that share its steps decide together.
#include <utility>
#include <variant>

#include "daemon/train/trainer.h"

namespace stoker::train {

using group::ControlRecord;
using group::SharedCommand;

// Whether the request takes effect at the end of the next step, on all ranks.
bool Trainer::defer(const Request& request) {
  if (!maybe_group_) return false;
  const control::Command& command = request.command;
  if (std::holds_alternative<control::Stop>(command)) {
    stop_requests_.push_back(request.done);
    return true;
  }
  if (std::holds_alternative<control::SaveCheckpoint>(command) && !maybe_group_->is_chief()) {
    asks_for_save_ = true;
    return true;
  }
  if (!std::holds_alternative<control::Pause>(command) &&
      !std::holds_alternative<control::Resume>(command) &&
      !std::holds_alternative<control::SetLearningRate>(command))
    return false;
  shared_requests_.push_back(request);
  return true;
}

// What this rank contributes to the end of the current step.
ControlRecord Trainer::own_record() {
  ControlRecord own{.step = state_.step};
  own.stop = stop_requests_.empty() ? 0 : 1;
  own.save = std::exchange(asks_for_save_, false) ? 1 : 0;
  if (!maybe_group_->is_chief()) {
    const auto micro_batches = static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
    own.sample_errors = source_.sample_errors_before(state_.ticket + micro_batches);
    return own;
  }
  if (shared_requests_.empty()) return own;
  const control::Command& command = shared_requests_.front().command;
  if (std::holds_alternative<control::Pause>(command)) own.command = SharedCommand::kPause;
  if (std::holds_alternative<control::Resume>(command)) own.command = SharedCommand::kResume;
  if (const auto* const change = std::get_if<control::SetLearningRate>(&command)) {
    own.command = SharedCommand::kSetLearningRate;
    own.argument = change->lr;
  }
  return own;
}

Status Trainer::sum_over_ranks() {
  STOKER_ASSIGN_OR_RETURN(agreed_, maybe_group_->sum(step_.gradients_to_sum(),
                                                     step_.scalars_to_sum(), own_record(), stop_));
  return {};
}

// Takes the same decisions on all ranks, which are at the same step boundary.
void Trainer::apply_agreed() {
  const ControlRecord agreed = std::exchange(agreed_, {});
  sample_errors_of_others_ = agreed.sample_errors;
  if (agreed.save > 0 && maybe_group_->is_chief()) save_requests_.emplace_back();
  Done done;
  if (agreed.command != SharedCommand::kNone && maybe_group_->is_chief()) {
    done = std::move(shared_requests_.front().done);
    shared_requests_.pop_front();
  }
  switch (agreed.command) {
    case SharedCommand::kNone:
      break;
    case SharedCommand::kPause:
      execute(control::Pause{}, done);
      break;
    case SharedCommand::kResume:
      execute(control::Resume{}, done);
      break;
    case SharedCommand::kSetLearningRate:
      execute(control::SetLearningRate{.lr = agreed.argument}, done);
      break;
  }
  if (agreed.stop == 0) return;
  stop_requested_ = true;
  for (const Done& stopped : std::exchange(stop_requests_, {})) execute(control::Stop{}, stopped);
}

// While paused there is no step: the ranks exchange their records only. The chief waits in between.
Status Trainer::agree_while_paused() {
  STOKER_ASSIGN_OR_RETURN(agreed_, maybe_group_->exchange(own_record(), stop_));
  apply_agreed();
  channels_.board.record_progress();
  return {};
}

// Commands that did not take effect before the end of training.
void Trainer::reject_deferred() {
  const Status ended(StatusCode::kClosed, "training has ended");
  for (const Request& request : std::exchange(shared_requests_, {})) answer(request.done, ended);
  for (const Done& done : std::exchange(stop_requests_, {})) answer(done, ended);
}

}  // namespace stoker::train
