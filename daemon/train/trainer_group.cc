// The group part of Trainer: what the ranks that share its steps decide together.
#include <chrono>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/ops/zeros.h>

#include "daemon/train/trainer.h"
#include "shared/base/thread_registry.h"

namespace stoker::train {

namespace {

constexpr ThreadActivity kWaitForParameters{.operation = "wait for parameters of other ranks",
                                            .is_waiting = true};
constexpr const char* kNonfiniteText = "nonfinite";

}  // namespace

using group::ControlRecord;
using group::RankReport;
using group::SharedCommand;

namespace {

// "KEY\nVALUE", or "KEY" to unset it.
std::string to_text(const control::Command& command) {
  const std::string* const key = control::changed_setting(command);
  if (key == nullptr) return "";
  const auto* const set = std::get_if<control::SetSetting>(&command);
  return set != nullptr ? *key + '\n' + set->value : *key;
}

}  // namespace

// Whether the request takes effect at the end of the next step, on all ranks.
bool Trainer::defer(const Request& request) {
  const control::Command& command = request.command;
  if (!maybe_group_ || control::is_dry_run(command)) return false;
  if (const auto* const stop = std::get_if<control::Stop>(&command)) {
    if (stop->is_preemption) was_preempted_ = true;
    stop_requests_.push_back(request.done);
    return true;
  }
  if (std::holds_alternative<control::SaveCheckpoint>(command) && !maybe_group_->is_chief()) {
    asks_for_save_ = true;
    return true;
  }
  if (!std::holds_alternative<control::Pause>(command) &&
      !std::holds_alternative<control::Resume>(command) &&
      control::changed_setting(command) == nullptr)
    return false;
  shared_requests_.push_back(request);
  return true;
}

// What this rank contributes to the end of the current step.
ControlRecord Trainer::own_record(uint64_t step_to_save) {
  ControlRecord own{.step = state_.step};
  own.stop = stop_requests_.empty() ? 0 : 1;
  own.preempted = was_preempted_ ? 1 : 0;
  own.save = std::exchange(asks_for_save_, false) ? 1 : 0;
  const StepEngine::CaptureVote capture = engine_->capture_vote();
  own.can_capture = capture.is_ready ? 1 : 0;
  own.gave_up_capture = capture.has_given_up ? 1 : 0;
  const auto micro_batches = static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
  if (!maybe_group_->is_chief()) {
    own.sample_errors = source_.sample_errors_before(state_.ticket + micro_batches);
    return own;
  }
  const bool is_paused = step_to_save == state_.step;
  const uint64_t next_ticket = state_.ticket + (is_paused ? 0 : micro_batches);
  own.refresh = source_.has_new_version_at(next_ticket) ? 1 : 0;
  if (is_sharded_) own.snapshot = must_announce_save(step_to_save) ? 1 : 0;
  if (shared_requests_.empty()) return own;
  const control::Command& command = shared_requests_.front().command;
  if (std::holds_alternative<control::Pause>(command)) own.command = SharedCommand::kPause;
  if (std::holds_alternative<control::Resume>(command)) own.command = SharedCommand::kResume;
  if (control::changed_setting(command) != nullptr) own.command = SharedCommand::kChangeSetting;
  return own;
}

// The parameters of all ranks are compared at the first step after a start, too: they were loaded.
RankReport Trainer::own_report() {
  const auto ms = [](nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  RankReport own{.compute_ms = ms(clock_.monotonic() - step_start_),
                 .data_wait_ms = ms(interval_.waited - waited_before_step_),
                 .quarantined = num_quarantined_sent_,
                 .optimizer_bytes = optimizer_bytes_};
  const auto every = config_.distributed.consistency_check_every_steps;
  if (every && (!has_compared_ || state_.step % *every == 0))
    own.checksum = checksum_of_parameters(state_.model());
  return own;
}

// Before the record that has their number, so that the chief can read them when it has the record.
Status Trainer::publish_quarantine() {
  if (maybe_group_->is_chief()) return {};
  const std::vector<uint64_t> samples = source_.quarantined();
  if (samples.size() == num_quarantined_sent_) return {};
  STOKER_RETURN_IF_ERROR(
      maybe_group_->group().send_text("quarantined", group::format_samples(samples)));
  num_quarantined_sent_ = samples.size();
  return {};
}

Status Trainer::receive_quarantine() {
  for (size_t rank = 1; rank < num_quarantined_.size(); ++rank) {
    const uint64_t count = agreed_.ranks[rank].quarantined;
    if (count == num_quarantined_[rank]) continue;
    STOKER_ASSIGN_OR_RETURN(const std::string text, maybe_group_->group().receive_text(
                                                        "quarantined", static_cast<int>(rank)));
    auto samples = group::parse_samples(text, count, source_.plan().options().size);
    if (!samples.ok())
      return samples.status().with_context("quarantine of " +
                                           maybe_group_->group().name_of(static_cast<int>(rank)));
    quarantined_of_others_[rank] = *std::move(samples);
    num_quarantined_[rank] = count;
  }
  return {};
}

Status Trainer::sum_over_ranks() {
  STOKER_RETURN_IF_ERROR(publish_quarantine());
  const RankReport report = own_report();
  if (maybe_buckets_) STOKER_RETURN_IF_ERROR(maybe_buckets_->finish(stop_));
  const auto gradients = maybe_buckets_ ? std::vector<at::Tensor>() : step_.gradients_to_sum();
  if (state_.optimizer().sums_own_gradients() && step_.scales_by_count()) {
    STOKER_RETURN_IF_ERROR(
        maybe_group_->group().all_reduce_ordered({step_.maybe_loss_count().unsqueeze(0)}, stop_));
    step_.scale_by_count();
  }
  std::vector<at::Tensor> scalars = step_.scalars_to_sum();
  for (const at::Tensor& squares : step_.squares_to_sum()) scalars.push_back(squares);
  STOKER_ASSIGN_OR_RETURN(
      agreed_, maybe_group_->sum(gradients, scalars, own_record(state_.step + 1), report, stop_));
  has_compared_ = true;
  channels_.group_exchanges.fetch_add(1, std::memory_order_relaxed);
  // Those before the update of this step.
  STOKER_RETURN_IF_ERROR(group::compare_checksums(agreed_.ranks, state_.step, [this](int rank) {
    return maybe_group_->group().name_of(rank);
  }));
  for (size_t rank = 0; rank < rank_totals_.size(); ++rank) {
    rank_totals_[rank].compute_ms += agreed_.ranks[rank].compute_ms;
    rank_totals_[rank].data_wait_ms += agreed_.ranks[rank].data_wait_ms;
    rank_totals_[rank].optimizer_bytes = agreed_.ranks[rank].optimizer_bytes;
  }
  ++rank_steps_;
  return maybe_group_->is_chief() ? receive_quarantine() : Status();
}

// Of the shards that the other ranks have updated. In no phase: at the start of Phase::kOptimizer the
// gradients are complete, here they are zero.
Status Trainer::gather_parameters() {
  return state_.optimizer().gather_parameters(
      [this](const at::Tensor& flat, const std::vector<int64_t>& ends) {
        const ScopedActivity waiting(kWaitForParameters);
        return maybe_group_->group().all_gather(flat, ends, stop_);
      });
}

// With a sharded optimizer, one rank alone can have state that is not finite. All must decide the same.
Result<std::string> Trainer::first_nonfinite_of_ranks(const std::string& own) {
  group::ProcessGroup& group = maybe_group_->group();
  // Before the sum, so that the others can read it when they have the flag of this rank.
  if (!own.empty()) STOKER_RETURN_IF_ERROR(group.send_text(kNonfiniteText, own));
  const at::Tensor flags = at::zeros({group.world_size()}, at::kDouble);
  flags[group.rank()].fill_(own.empty() ? 0 : 1);
  // Also during a stop: the last state is saved then.
  STOKER_RETURN_IF_ERROR(group.all_reduce_ordered({flags}, {}));
  for (int rank = 0; rank < group.world_size(); ++rank) {
    if (flags[rank].item<double>() == 0) continue;
    STOKER_ASSIGN_OR_RETURN(const std::string found, group.receive_text(kNonfiniteText, rank));
    return group.name_of(rank) + ": " + found;
  }
  return std::string();
}

// After an error, the tensors are undefined.
std::vector<StepEngine::Exchange> Trainer::exchanges() {
  if (!maybe_group_) return {};
  const auto run = [this](Status (Trainer::*exchange)()) {
    return [this, exchange] {
      group_status_ = (this->*exchange)();
      return group_status_.ok();
    };
  };
  std::vector<StepEngine::Exchange> exchanges;
  exchanges.push_back({.run = run(&Trainer::sum_over_ranks), .work = [this] { update(); }});
  if (!is_sharded_) return exchanges;
  exchanges.push_back({.run = run(&Trainer::gather_parameters), .work = {}});
  if (state_.ema_weights() != nullptr) exchanges.back().work = [this] { update_ema(); };
  return exchanges;
}

// For the status.
void Trainer::report_ranks() {
  if (!maybe_group_ || rank_steps_ == 0) return;
  const auto steps = static_cast<double>(std::exchange(rank_steps_, 0));
  status_.group.ranks.clear();
  for (RankReport& total : rank_totals_) {
    const RankReport sum = std::exchange(total, {});
    status_.group.ranks.push_back({.compute_ms = sum.compute_ms / steps,
                                   .data_wait_ms = sum.data_wait_ms / steps,
                                   .optimizer_bytes = sum.optimizer_bytes});
  }
}

// Takes the same decisions on all ranks, which are at the same step boundary.
Status Trainer::apply_agreed() {
  const ControlRecord agreed = std::exchange(agreed_, {});
  sample_errors_of_others_ = agreed.sample_errors;
  is_save_agreed_ = agreed.snapshot > 0;
  is_refresh_agreed_ = agreed.refresh > 0;
  apply_capture_votes(agreed);
  if (agreed.save > 0 && maybe_group_->is_chief()) save_requests_.emplace_back();
  Request request;
  if (agreed.command != SharedCommand::kNone && maybe_group_->is_chief()) {
    request = std::move(shared_requests_.front());
    shared_requests_.pop_front();
  }
  switch (agreed.command) {
    case SharedCommand::kNone:
      break;
    case SharedCommand::kPause:
      execute(control::Pause{}, request.done);
      break;
    case SharedCommand::kResume:
      execute(control::Resume{}, request.done);
      break;
    case SharedCommand::kChangeSetting:
      STOKER_RETURN_IF_ERROR(change_agreed_setting(request));
      break;
  }
  if (agreed.stop == 0) return {};
  stop_requested_ = true;
  is_preempted_ = agreed.preempted > 0;
  for (const Done& stopped : std::exchange(stop_requests_, {})) execute(control::Stop{}, stopped);
  return {};
}

void Trainer::apply_capture_votes(const ControlRecord& agreed) {
  const auto world_size = static_cast<uint64_t>(maybe_group_->group().world_size());
  if (agreed.gave_up_capture == 0) {
    if (agreed.can_capture == world_size) engine_->start_capturing();
  } else if (!engine_->capture_vote().has_given_up) {
    engine_->stop_capturing("not captured on " + std::to_string(agreed.gave_up_capture) + " of " +
                            std::to_string(world_size) +
                            " ranks, for the reason in the log of each of these");
  }
}

// `request`: on the chief, whose command the others receive as text.
Status Trainer::change_agreed_setting(const Request& request) {
  STOKER_ASSIGN_OR_RETURN(const std::string text,
                          maybe_group_->group().text_of_chief(to_text(request.command), stop_));
  const size_t separator = text.find('\n');
  if (separator == std::string::npos)
    execute(control::UnsetSetting{.key = text}, request.done);
  else
    execute(
        control::SetSetting{.key = text.substr(0, separator), .value = text.substr(separator + 1)},
        request.done);
  return {};
}

// While paused there is no step: the ranks exchange their records only. The chief waits in between.
Status Trainer::agree_while_paused() {
  STOKER_ASSIGN_OR_RETURN(agreed_,
                          maybe_group_->exchange(own_record(state_.step),
                                                 {.quarantined = num_quarantined_sent_}, stop_));
  channels_.group_exchanges.fetch_add(1, std::memory_order_relaxed);
  STOKER_RETURN_IF_ERROR(apply_agreed());
  if (is_save_agreed_) {
    wait_for_writer();
    save_for_requests();
  }
  channels_.board.record_progress();
  return {};
}

// To the trainer of the next segment.
void Trainer::return_deferred() {
  std::vector<Request> left;
  for (Request& request : std::exchange(shared_requests_, {})) left.push_back(std::move(request));
  for (Done& done : std::exchange(stop_requests_, {}))
    left.push_back({control::Stop{.is_preemption = was_preempted_}, std::move(done)});
  if (std::exchange(asks_for_save_, false)) left.push_back({control::SaveCheckpoint{}, {}});
  if (!left.empty()) channels_.mailbox.put_back(std::move(left));
}

}  // namespace stoker::train
