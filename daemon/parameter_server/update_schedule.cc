#include "daemon/parameter_server/update_schedule.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

namespace stoker::parameter_server {

UpdateSchedule::UpdateSchedule(const UpdateOptions& options)
    : options_(options), workers_(options.num_workers) {
  assert(options.num_workers > 0 && options.gradients_per_step > 0);
  assert(options.replicas == config::ReplicaMode::kSync || options.gradients_per_step == 1);
}

void UpdateSchedule::initialize(uint64_t step) {
  assert(!is_initialized_);
  is_initialized_ = true;
  step_ = step;
  next_ticket_ = step;
}

// ---- lives ---------------------------------------------------------------------------------------

Status UpdateSchedule::join(const WorkerLife& worker) {
  Worker& state = workers_[worker.worker];
  if (worker.life <= state.life)
    return Status(StatusCode::kBusy, "worker " + std::to_string(worker.worker) +
                                         " has been replaced by a later start");
  release(worker.worker);
  state.life = worker.life;
  state.is_present = true;
  return {};
}

void UpdateSchedule::leave(const WorkerLife& worker) {
  if (!check_life(worker).ok()) return;
  release(worker.worker);
  workers_[worker.worker].is_present = false;
}

Status UpdateSchedule::check_life(const WorkerLife& worker) const {
  const Worker& state = workers_[worker.worker];
  if (state.is_present && state.life == worker.life) return {};
  return Status(StatusCode::kClosed, "start " + std::to_string(worker.life) + " of worker " +
                                         std::to_string(worker.worker) +
                                         " is not connected any more");
}

// Hands the ticket of the worker on, and ends its save.
void UpdateSchedule::release(size_t worker) {
  const auto held = std::exchange(workers_[worker].held, std::nullopt);
  if (held && options_.replicas == config::ReplicaMode::kAsync) returned_.insert(held->ticket);
  if (worker == 0) is_saving_ = false;
}

// ---- tickets -------------------------------------------------------------------------------------

Result<Claim> UpdateSchedule::claim(const WorkerLife& worker) {
  STOKER_RETURN_IF_ERROR(check_life(worker));
  if (!is_initialized_) return Claim{};
  if (const auto& held = workers_[worker.worker].held)
    return Claim{.result = ClaimResult::kGranted, .ticket = held->ticket, .step = held->step};
  if (is_finished()) return Claim{.result = ClaimResult::kEnded};
  return options_.replicas == config::ReplicaMode::kSync ? claim_sync(worker.worker)
                                                         : claim_async(worker.worker);
}

Claim UpdateSchedule::grant(size_t worker, uint64_t ticket) {
  workers_[worker].held = Held{.ticket = ticket, .step = step_};
  return {.result = ClaimResult::kGranted, .ticket = ticket, .step = step_};
}

// A free ticket of the step; with more workers than tickets otherwise the one that the fewest have.
Claim UpdateSchedule::claim_sync(size_t worker) {
  if (is_saving_) return {};
  const bool has_backups = options_.num_workers > options_.gradients_per_step;
  const uint64_t first = step_ * options_.gradients_per_step;
  std::optional<std::pair<size_t, uint64_t>> best;  // holders, ticket
  for (uint64_t ticket = first; ticket < first + options_.gradients_per_step; ++ticket) {
    if (received_.contains(ticket)) continue;
    const std::pair<size_t, uint64_t> candidate{num_holders(ticket), ticket};
    if (!best || candidate < *best) best = candidate;
  }
  if (!best || (best->first > 0 && !has_backups)) return {};
  return grant(worker, best->second);
}

Claim UpdateSchedule::claim_async(size_t worker) {
  if (!keeps_bound(worker)) return {};
  if (!returned_.empty()) {
    const uint64_t ticket = *returned_.begin();
    returned_.erase(returned_.begin());
    return grant(worker, ticket);
  }
  if (is_saving_ || next_ticket_ >= options_.max_steps) return {};
  return grant(worker, next_ticket_++);
}

// Whether no gradient exceeds the bound even if all others that are being computed, with one more of
// this worker, are applied before it.
bool UpdateSchedule::keeps_bound(size_t worker) const {
  if (!options_.max_staleness) return true;
  uint64_t out = 1;
  for (const Worker& each : workers_) out += each.held ? 1 : 0;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const uint64_t read = workers_[i].held ? workers_[i].held->step : step_;
    const bool counts = workers_[i].held.has_value() || i == worker;
    if (counts && step_ + (out - 1) - read > *options_.max_staleness) return false;
  }
  return true;
}

size_t UpdateSchedule::num_holders(uint64_t ticket) const {
  return static_cast<size_t>(std::ranges::count_if(workers_, [&](const Worker& worker) {
    return worker.held && worker.held->ticket == ticket && worker.held->step == step_;
  }));
}

// ---- gradients -----------------------------------------------------------------------------------

Result<PushResult> UpdateSchedule::push(const WorkerLife& worker, uint64_t ticket) {
  STOKER_RETURN_IF_ERROR(check_life(worker));
  std::optional<Held>& held = workers_[worker.worker].held;
  if (!held || held->ticket != ticket)
    return Status(StatusCode::kInvalidArgument, "worker " + std::to_string(worker.worker) +
                                                    " does not have ticket " +
                                                    std::to_string(ticket));
  const Held done = *std::exchange(held, std::nullopt);
  const PushResult result =
      options_.replicas == config::ReplicaMode::kSync ? push_sync(done) : push_async(done);
  Worker& state = workers_[worker.worker];
  ++(result == PushResult::kDropped ? state.num_dropped : state.num_applied);
  return result;
}

PushResult UpdateSchedule::push_sync(const Held& held) {
  const bool is_stale = held.step < step_;
  if (is_stale || !received_.insert(held.ticket).second) {
    ++(is_stale ? num_stale_ : num_backups_);
    return PushResult::kDropped;
  }
  if (received_.size() < options_.gradients_per_step) return PushResult::kAccepted;
  received_.clear();
  ++step_;
  return PushResult::kStepCompleted;
}

PushResult UpdateSchedule::push_async(const Held& held) {
  largest_staleness_ = std::max(largest_staleness_, step_ - held.step);
  ++step_;
  return PushResult::kStepCompleted;
}

WorkerSummary UpdateSchedule::summary(size_t worker) const {
  const Worker& state = workers_[worker];
  return {.starts = state.life,
          .is_present = state.is_present,
          .has_ticket = state.held.has_value(),
          .applied = state.num_applied,
          .dropped = state.num_dropped};
}

// ---- saving --------------------------------------------------------------------------------------

// In a sync run, gradients of workers that still compute would complete a step during the save.
bool UpdateSchedule::has_tickets_out() const {
  return !returned_.empty() || std::ranges::any_of(workers_, [](const Worker& worker) {
    return worker.held.has_value();
  });
}

Result<bool> UpdateSchedule::begin_save(const WorkerLife& chief) {
  STOKER_RETURN_IF_ERROR(check_life(chief));
  assert(chief.worker == 0);
  release(chief.worker);
  is_saving_ = true;
  return !has_tickets_out();
}

void UpdateSchedule::end_save(const WorkerLife& chief) {
  if (check_life(chief).ok()) is_saving_ = false;
}

}  // namespace stoker::parameter_server
