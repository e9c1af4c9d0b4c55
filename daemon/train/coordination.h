// Coordination: what the processes that share the steps of a run decide together. A process that trains alone
// (SoloCoordination) decides at once; the ranks of a group (GroupCoordination) decide with the sums of each step, so that
// commands, saves and the end take effect on all of them after the same step.
//
// Threads:   the trainer thread only, but for the functions of sums(), see StepEngine::Calls.
// Blocking:  SoloCoordination never. GroupCoordination until the other ranks are at the same step, at most for the group's
//            timeout.
// Errors:    as ProcessGroup; kInternal: the parameters of the ranks differ.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "daemon/group/control_record.h"
#include "daemon/train/batch_source.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/step_engine.h"
#include "daemon/train/train_step.h"
#include "shared/base/status.h"
#include "shared/control/trainer_status.h"
#include "shared/metrics/metrics_record.h"
#include "shared/ring/ticket_share.h"

namespace stoker::train {

class Coordination {
 public:
  virtual ~Coordination() = default;

  // The micro-batches of a step that this process trains on.
  virtual const ring::TicketShare& share() const = 0;
  // The chief saves and reports, and gets the commands.
  virtual bool is_chief() const { return true; }
  // Whether other processes take part in each step, so that this one must not decide alone, and all must find what is not
  // finite in the same step.
  virtual bool shares_steps() const { return false; }
  // Before the first step. The engine must outlive the steps.
  virtual void start(StepEngine& /*engine*/, std::stop_token /*stop*/) {}

  // ---- Commands
  // An error if this kind of run cannot do it.
  virtual Status check(const control::Command& /*command*/) const { return {}; }
  // Whether agree() will return the request, or others of its kind, for all processes.
  virtual bool defer(const Request& /*request*/) { return false; }
  // After a step: what takes effect now, in this order, on all processes.
  virtual Result<std::vector<Request>> agree() { return std::vector<Request>(); }
  // The same while there is no step, from time to time. Only the chief waits for commands in between.
  virtual Result<std::vector<Request>> agree_while_paused() { return std::vector<Request>(); }
  // What was deferred and did not take effect, for the trainer that follows, or to be rejected.
  virtual std::vector<Request> take_deferred() { return {}; }

  // ---- Steps
  virtual void begin_step(uint64_t /*step*/) {}
  // With shares_steps(), what the engine calls after the last micro-batch of a step, in place of `update`.
  struct Updates {
    std::function<void()> update;      // by the sums of the gradients
    std::function<void()> update_ema;  // when the parameters are complete; empty: no averages
    // Whether all processes save this step, which is about to be complete, or is the current one of a pause.
    std::function<bool(uint64_t step)> announces_save;
    // Times of the step so far, and what this process uses.
    std::function<group::RankReport()> report;
  };
  virtual std::vector<StepEngine::Exchange> exchanges(TrainStep& /*step*/, Updates /*updates*/) {
    return {};
  }
  // Sums that start while the backward pass of the last micro-batch computes the rest.
  virtual StepEngine::Sums sums() { return {}; }
  virtual void begin_sums(std::function<void(size_t)> /*on_complete*/) {}
  virtual void end_sums() {}
  // The error of an exchange, which has ended the step.
  virtual Status exchange_status() const { return {}; }
  // The first of all processes that has state that is not finite; of one that checks alone its own. Empty: none.
  virtual Result<std::string> first_nonfinite(std::string own) { return own; }

  // ---- Saves and segments
  // Whether all processes save the current step, each its part.
  virtual bool is_save_agreed() const { return false; }
  // Whether a dataset version starts with the next step, which has this ticket.
  virtual bool starts_dataset_version(uint64_t ticket) const = 0;
  // Before work of the host that nothing else limits.
  virtual Status wait_for_devices() { return {}; }
  // kPeerLost: the state is undefined.
  virtual Status check_lost() { return {}; }
  // Of other processes, for a checkpoint: samples in quarantine, and sample errors since this start.
  virtual void add_quarantined(std::vector<uint64_t>& /*samples*/) const {}
  virtual uint64_t sample_errors_of_others() const { return 0; }

  // Adds the exchange to a record, and the ranks to the status. `stall_ms`: of snapshots, per step.
  virtual void report(metrics::TrainMetrics& /*metrics*/, double /*stall_ms*/,
                      control::TrainerStatus::Group& /*status*/) {}
};

class SoloCoordination final : public Coordination {
 public:
  SoloCoordination(const BatchSource& source, int64_t micro_batches)
      : source_(source), share_{.tickets_per_step = static_cast<uint64_t>(micro_batches)} {}

  const ring::TicketShare& share() const override { return share_; }
  bool starts_dataset_version(uint64_t ticket) const override {
    return source_.has_new_version_at(ticket);
  }

 private:
  const BatchSource& source_;
  const ring::TicketShare share_;
};

}  // namespace stoker::train
