// UpdateSchedule: what parameter server 0 decides about the updates of a run: which worker computes
// the gradient of which ticket, whether a gradient is applied, and when a step is complete.
//
// A ticket is the number of a micro-batch of the run. Step s has the tickets s * G … s * G + G - 1, with
// G = train.gradient_accumulation_steps, so each is applied exactly once, as by one process.
//
//   sync:  a step is complete when all of its G gradients are there. Gradients of an earlier step, and
//          second ones of a ticket, are dropped and counted. If there are more than G workers, those
//          without a free ticket compute one that another worker has not returned yet (backups).
//   async: G is 1. Each gradient is a step, whatever others have changed since it was computed. With
//          max_staleness, a worker waits for its ticket while this could make the gradient of another one
//          more updates old than that.
//
// With a ticket, a worker learns of the one that it probably gets next, so that it reads these samples in
// the meantime. It is not the worker's: the step of a gradient, and the bound, are those of the claim. Others
// take it if nothing else is free. So an async run can have gaps: free tickets below ones that are applied.
// A worker that leaves closes one before, because a save needs all of them.
//
// A worker has a number of its life, which increases with each start. A new life, and the loss of the
// connection, requeue the tickets of the one before. Whatever an earlier life sends is rejected, so a
// worker that returns must take a ticket, and with it the current parameters, before it sends gradients.
//
// Worker 0 is the chief. It initializes the parameters; until then the others wait. What it saves is the
// state of one process after step() steps:
//
//   sync:  always complete, whatever workers still compute. A save waits for none of them, and they continue
//          with the tickets of the step; but the step is complete only when the save has ended.
//   async: complete when all tickets that workers have, and all below them, are applied. Until then, and while
//          the state is read, there are no new tickets.
//
// If the chief is lost, its save ends, and the others continue.
//
// Threads: none; the owner serializes the calls.
// Errors:  kClosed: the call is of an earlier life. kInvalidArgument: the worker does not have the ticket.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/training_config.h"

namespace stoker::parameter_server {

struct UpdateOptions {
  config::ReplicaMode replicas = config::ReplicaMode::kSync;
  size_t num_workers = 1;
  uint64_t gradients_per_step = 1;             // G; 1 for kAsync
  uint64_t max_steps = 1;                      // of the run
  std::optional<uint64_t> max_staleness = {};  // kAsync; updates; nullopt: no bound
};

// One start of a worker.
struct WorkerLife {
  size_t worker = 0;
  uint64_t life = 1;

  bool operator==(const WorkerLife&) const = default;
};

enum class ClaimResult {
  kGranted,
  kWait,   // ask again when something has changed
  kEnded,  // the run has all of its steps
};
struct Claim {
  ClaimResult result = ClaimResult::kWait;
  uint64_t ticket = 0;  // only if granted
  uint64_t step = 0;    // of the parameters that the gradient is to be computed from
  std::optional<uint64_t> prefetch = {};  // the ticket that probably follows; nullopt: not known

  bool operator==(const Claim&) const = default;
};

enum class PushResult {
  kAccepted,  // part of the step
  kDropped,   // not applied
};

// For the status.
struct WorkerSummary {
  uint64_t starts = 0;
  bool is_present = false;
  bool has_ticket = false;
  uint64_t applied = 0, dropped = 0;  // gradients, of all starts
};

class UpdateSchedule {
 public:
  explicit UpdateSchedule(const UpdateOptions& options);

  // The parameters are those after `step` steps, which the chief has sent. Call once.
  void initialize(uint64_t step);
  // `max_steps`: not below step(). Of an async run only while no worker has a ticket.
  void set_max_steps(uint64_t max_steps) { options_.max_steps = max_steps; }
  bool is_initialized() const { return is_initialized_; }

  // kBusy: this life, or a later one, has joined before.
  Status join(const WorkerLife& worker);
  // The connection of the worker is lost. No effect for an earlier life.
  void leave(const WorkerLife& worker);

  // The next ticket of the worker. One that has a ticket gets the same again.
  Result<Claim> claim(const WorkerLife& worker);
  // Of a worker that leaves after this ticket: one below others that workers have had. kWait: there is none,
  // or max_staleness forbids it; always in a sync run.
  Result<Claim> claim_gap(const WorkerLife& worker);
  // The gradient of the worker's ticket is complete on all servers.
  Result<PushResult> push(const WorkerLife& worker, uint64_t ticket);

  // Only for the chief: starts a save, and requeues its ticket. True: the state is complete and does not
  // change before end_save(). False: there are no parameters yet, or, in an async run, other gradients are
  // still missing; call it again when something has changed, and take tickets in between.
  Result<bool> begin_save(const WorkerLife& chief);
  void end_save(const WorkerLife& chief);
  // Call after push(), and after end_save() and leave(), which can end a save. True: all gradients of the step
  // are there, so its update is due, and step() has increased.
  bool complete_step();

  uint64_t step() const { return step_; }  // completed; global_step
  bool is_finished() const { return step_ >= options_.max_steps; }
  bool is_saving() const { return is_saving_; }
  bool is_present(size_t worker) const { return workers_[worker].is_present; }
  WorkerSummary summary(size_t worker) const;
  // Gradients that were dropped: their step was complete, or their ticket had one.
  uint64_t num_stale() const { return num_stale_; }
  uint64_t num_backups() const { return num_backups_; }
  uint64_t num_dropped() const { return num_stale_ + num_backups_; }
  // Of the applied gradients: the most updates between the parameters of one and its own update.
  uint64_t largest_staleness() const { return largest_staleness_; }

 private:
  struct Held {
    uint64_t ticket = 0;
    uint64_t step = 0;
  };
  struct Worker {
    uint64_t life = 0;  // 0: has never joined
    bool is_present = false;
    std::optional<Held> held;
    std::optional<uint64_t> prefetched;  // the ticket that it probably gets next
    uint64_t num_applied = 0, num_dropped = 0;
  };

  Status check_life(const WorkerLife& worker) const;
  void release(size_t worker);
  bool is_sync() const { return options_.replicas == config::ReplicaMode::kSync; }
  uint64_t first_ticket() const { return step_ * options_.gradients_per_step; }  // of the step
  Claim grant(size_t worker, uint64_t ticket);
  std::optional<uint64_t> next_of_sync(size_t worker) const;
  std::optional<uint64_t> next_of_async() const;
  std::optional<uint64_t> choose_async(size_t worker, uint64_t end) const;
  bool is_free(uint64_t ticket) const;
  bool is_in_step(uint64_t ticket) const;
  size_t num_prefetching(uint64_t ticket) const;
  uint64_t least_prefetched(uint64_t first, uint64_t count) const;
  Claim claim_sync(size_t worker);
  Claim claim_async(size_t worker);
  bool keeps_bound(size_t worker) const;
  size_t num_holders(uint64_t ticket) const;
  bool has_complete_state() const;
  PushResult push_sync(const Held& held);
  PushResult push_async(const Held& held);

  UpdateOptions options_;
  std::vector<Worker> workers_;
  bool is_initialized_ = false;
  bool is_saving_ = false;
  uint64_t step_ = 0;
  uint64_t num_stale_ = 0, num_backups_ = 0;
  uint64_t largest_staleness_ = 0;
  std::set<uint64_t> received_;  // the tickets of the current step that have a gradient
  // kAsync: free tickets that are lower than others that are not: of workers that were lost, or that
  // another worker was expected to take.
  std::set<uint64_t> returned_;
  uint64_t next_ticket_ = 0;  // kAsync: higher than all that a worker has had
};

}  // namespace stoker::parameter_server
