#include "daemon/parameter_server/update_schedule.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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
  state.prefetched.reset();
  state.life = worker.life;
  state.is_present = true;
  return {};
}

void UpdateSchedule::leave(const WorkerLife& worker) {
  if (!check_life(worker).ok()) return;
  release(worker.worker);
  workers_[worker.worker].prefetched.reset();
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
  if (held && !is_sync()) returned_.insert(held->ticket);
  if (worker == 0) is_saving_ = false;
}

// ---- tickets -------------------------------------------------------------------------------------

Result<Claim> UpdateSchedule::claim(const WorkerLife& worker) {
  STOKER_RETURN_IF_ERROR(check_life(worker));
  if (!is_initialized_) return Claim{};
  const Worker& state = workers_[worker.worker];
  if (state.held)
    return Claim{.result = ClaimResult::kGranted,
                 .ticket = state.held->ticket,
                 .step = state.held->step,
                 .prefetch = state.prefetched};
  if (is_finished()) return Claim{.result = ClaimResult::kEnded};
  return is_sync() ? claim_sync(worker.worker) : claim_async(worker.worker);
}

Result<Claim> UpdateSchedule::claim_gap(const WorkerLife& worker) {
  STOKER_RETURN_IF_ERROR(check_life(worker));
  Worker& state = workers_[worker.worker];
  const bool is_possible =
      is_initialized_ && !is_sync() && !state.held && keeps_bound(worker.worker);
  const auto ticket = is_possible ? choose_async(worker.worker, next_ticket_) : std::nullopt;
  state.prefetched.reset();
  if (!ticket) return Claim{};
  returned_.erase(*ticket);
  state.held = Held{.ticket = *ticket, .step = step_};
  return Claim{.result = ClaimResult::kGranted, .ticket = *ticket, .step = step_};
}

Claim UpdateSchedule::grant(size_t worker, uint64_t ticket) {
  Worker& state = workers_[worker];
  state.held = Held{.ticket = ticket, .step = step_};
  if (!state.prefetched || !is_free(*state.prefetched)) {
    state.prefetched.reset();
    state.prefetched = is_sync() ? next_of_sync(worker) : next_of_async();
  }
  return {.result = ClaimResult::kGranted,
          .ticket = ticket,
          .step = step_,
          .prefetch = state.prefetched};
}

// A free ticket of the step; with more workers than tickets otherwise the one that the fewest have. Of these
// the one that it has prefetched, then one that no other worker prefetches.
Claim UpdateSchedule::claim_sync(size_t worker) {
  const bool has_backups = options_.num_workers > options_.gradients_per_step;
  std::optional<std::tuple<size_t, size_t, uint64_t>> best;  // holders, prefetching, ticket
  for (uint64_t ticket = first_ticket(); is_in_step(ticket); ++ticket) {
    if (received_.contains(ticket)) continue;
    const bool is_own = workers_[worker].prefetched == ticket;
    const std::tuple candidate{num_holders(ticket), is_own ? 0 : 1 + num_prefetching(ticket),
                               ticket};
    if (!best || candidate < *best) best = candidate;
  }
  if (!best || (std::get<0>(*best) > 0 && !has_backups)) return {};
  return grant(worker, std::get<2>(*best));
}

Claim UpdateSchedule::claim_async(size_t worker) {
  if (!keeps_bound(worker)) return {};
  // During a save only those that the state needs.
  const auto ticket = choose_async(worker, is_saving_ ? next_ticket_ : options_.max_steps);
  if (!ticket) return {};
  for (; next_ticket_ <= *ticket; ++next_ticket_) returned_.insert(next_ticket_);
  returned_.erase(*ticket);
  return grant(worker, *ticket);
}

// Below `end`: the one that it has prefetched, then the lowest that no other worker prefetches, then the lowest.
std::optional<uint64_t> UpdateSchedule::choose_async(size_t worker, uint64_t end) const {
  const auto own = workers_[worker].prefetched;
  if (own && *own < end && is_free(*own)) return own;
  if (const auto next = next_of_async(); next && *next < end) return next;
  if (!returned_.empty()) return *returned_.begin();
  return next_ticket_ < end ? std::optional(next_ticket_) : std::nullopt;
}

// ---- prefetching ---------------------------------------------------------------------------------

// Of the free tickets of the step, workers without a ticket take the lowest. Then one of the next step, which
// is free when this one is complete.
std::optional<uint64_t> UpdateSchedule::next_of_sync(size_t worker) const {
  size_t num_waiting = 0;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& other = workers_[i];
    const bool takes_own =
        other.prefetched && is_in_step(*other.prefetched) && is_free(*other.prefetched);
    num_waiting += i != worker && other.is_present && !other.held && !takes_own ? 1 : 0;
  }
  for (uint64_t ticket = first_ticket(); is_in_step(ticket); ++ticket)
    if (is_free(ticket) && num_prefetching(ticket) == 0 && num_waiting-- == 0) return ticket;
  if (step_ + 1 >= options_.max_steps) return std::nullopt;
  const uint64_t gradients = options_.gradients_per_step;
  return least_prefetched(first_ticket() + gradients, gradients);
}

// Of `count` tickets from `first`: the one that the fewest workers prefetch, then the lowest.
uint64_t UpdateSchedule::least_prefetched(uint64_t first, uint64_t count) const {
  std::pair best{num_prefetching(first), first};
  for (uint64_t ticket = first + 1; ticket < first + count; ++ticket)
    best = std::min(best, {num_prefetching(ticket), ticket});
  return best.second;
}

// The lowest free ticket that no worker prefetches.
std::optional<uint64_t> UpdateSchedule::next_of_async() const {
  for (const uint64_t ticket : returned_)
    if (num_prefetching(ticket) == 0) return ticket;
  for (uint64_t ticket = next_ticket_; ticket < options_.max_steps; ++ticket)
    if (num_prefetching(ticket) == 0) return ticket;
  return std::nullopt;
}

// Whether no worker has it, and it has no gradient.
bool UpdateSchedule::is_free(uint64_t ticket) const {
  if (!is_sync()) return ticket >= next_ticket_ || returned_.contains(ticket);
  return ticket >= first_ticket() && !received_.contains(ticket) && num_holders(ticket) == 0;
}

bool UpdateSchedule::is_in_step(uint64_t ticket) const {
  return ticket >= first_ticket() && ticket < first_ticket() + options_.gradients_per_step;
}

size_t UpdateSchedule::num_prefetching(uint64_t ticket) const {
  return static_cast<size_t>(std::ranges::count_if(
      workers_, [ticket](const Worker& worker) { return worker.prefetched == ticket; }));
}

// ---- holders -------------------------------------------------------------------------------------

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
  const PushResult result = is_sync() ? push_sync(done) : push_async(done);
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
  return PushResult::kAccepted;
}

bool UpdateSchedule::complete_step() {
  if (received_.size() < options_.gradients_per_step || (is_sync() && is_saving_)) return false;
  received_.clear();
  ++step_;
  return true;
}

PushResult UpdateSchedule::push_async(const Held& held) {
  largest_staleness_ = std::max(largest_staleness_, step_ - held.step);
  received_.insert(held.ticket);
  return PushResult::kAccepted;
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

// In a sync run, a gradient that is out can only be one of the step that follows the state, which does not
// complete during a save; or it is dropped when it comes.
bool UpdateSchedule::has_complete_state() const {
  if (!is_initialized_) return false;
  const auto has_ticket = [](const Worker& worker) { return worker.held.has_value(); };
  return is_sync() || (returned_.empty() && std::ranges::none_of(workers_, has_ticket));
}

Result<bool> UpdateSchedule::begin_save(const WorkerLife& chief) {
  STOKER_RETURN_IF_ERROR(check_life(chief));
  assert(chief.worker == 0);
  // It has perhaps read this one, and not yet the one that would follow.
  if (Worker& state = workers_[chief.worker]; state.held) state.prefetched = state.held->ticket;
  release(chief.worker);
  is_saving_ = true;
  return has_complete_state();
}

void UpdateSchedule::end_save(const WorkerLife& chief) {
  if (check_life(chief).ok()) is_saving_ = false;
}

}  // namespace stoker::parameter_server
