// ReplicaTrainer: the training loop of a worker of a cluster. Takes a ticket, reads its batch, takes the
// parameters of the servers, and sends the gradients; the servers update. The batch that probably follows is
// read in the meantime (BatchReader). The chief also writes records and checkpoints, which are those of one
// process.
//
// Threads:   run() on one thread. Other threads send requests through the mailbox and read the status
//            board.
// Blocking:  waits for tickets, for the servers, and on the chief while paused and at the end for the last checkpoint;
//            less than a second without checking the stop token.
// Ownership: what the constructor takes by reference must outlive this object.
// Errors:    as train::Trainer, and kPeerLost: a parameter server is lost.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "daemon/parameter_server/batch_reader.h"
#include "daemon/parameter_server/server_connection.h"
#include "daemon/parameter_server/setting_history.h"
#include "daemon/parameter_server/variable_placement.h"
#include "daemon/parameter_server/variable_store.h"
#include "daemon/train/commands.h"
#include "daemon/train/metrics_sink.h"
#include "daemon/train/remaining_time.h"
#include "daemon/train/save_triggers.h"
#include "daemon/train/step_instrumentation.h"
#include "daemon/train/train_step.h"
#include "daemon/train/trainer_channels.h"
#include "daemon/train/training_state.h"
#include "daemon/writer/checkpoint_writer.h"
#include "shared/base/clock.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"
#include "shared/metrics/metrics_record.h"
#include "shared/run/run_state.h"

namespace stoker::parameter_server {

// What each server has of the model and, with `has_state`, of the optimizer.
std::vector<ServerPart> make_server_parts(train::TrainingState& state, size_t num_servers,
                                          config::VariablePlacement placement, bool has_state);
// Parameters that are not trained, and buffers: several workers get those of the chief at their start.
std::vector<at::Tensor> untrained_tensors(const model::Model& model);
// Whether the servers have to know the norm of the gradients of all of them.
bool needs_norm_of_all(const config::Config& config, size_t num_servers);
// The variables of server `server`, with new optimizer state. Leaves `state` without a model that can be
// trained. `settings` must outlive the result. Errors: as train::Optimizer::create().
Result<VariableStore> make_variable_store(const config::Config& config,
                                          std::unique_ptr<train::TrainingState> state,
                                          size_t server, size_t num_servers,
                                          config::VariablePlacement placement,
                                          const SettingHistory& settings);

// What only the chief has.
struct ChiefDuties {
  writer::CheckpointWriter& writer;
  train::MetricsSink& sink;
  checkpoint::Manifest manifest;  // template of the checkpoints of this run
  uint64_t metrics_bytes = 0;     // length of train.jsonl
  bool save_after_resume = false;
};

class ReplicaTrainer {
 public:
  // `config`: as configured; the live settings of the state, and those that the servers have, replace some of it.
  // `state`: its ticket is that of its step, from which those of all steps follow. `reading`: gets a stop when run()
  // returns; reads of `data` should then end, so that the destructor does not wait for a batch that is not needed.
  // `on_setting_change`: also of a start from a checkpoint, then with an empty key.
  ReplicaTrainer(const config::Config& config, const data::Dataset& data,
                 const data::order::SamplePlan& plan, train::TrainingState& state,
                 ServerConnection& connection, train::TrainerChannels& channels, Clock& clock,
                 std::optional<ChiefDuties> chief,
                 std::stop_source reading = std::stop_source(std::nostopstate),
                 train::OnSettingChange on_setting_change = {});

  // kFinished, kStopped or kPreempted. On the chief the last state is then saved, and the run ends on all tasks.
  Result<run::RunOutcome> run(const std::stop_token& stop);

 private:
  Result<run::RunOutcome> train(const std::stop_token& stop);
  void execute_commands();
  void execute(const train::Request& request);
  void execute_setting(const train::Request& request);
  // While the servers hold the state of this step.
  Status change_settings(uint64_t step, const std::stop_token& stop);
  SettingsVersion own_settings() const;
  Status send_settings(const std::stop_token& stop);
  Status take_settings();
  void answer_pauses();
  void end_requests(const Status& failure);
  Status close_gap(const std::stop_token& stop);
  Status train_on(const ServerConnection::Claimed& claimed, const std::stop_token& stop);
  // Null while the chief records no profile and no inspection.
  train::StepObserver* maybe_observer() {
    return instrumentation_ ? instrumentation_->maybe_observer() : nullptr;
  }
  Result<feed::ReceivedBatch> read_batch(uint64_t ticket, const std::stop_token& stop);
  Status push(uint64_t ticket, uint64_t step, const Sums& sums, const std::stop_token& stop);
  Sums sums_of_micro_batch();
  void undo_step_without_values();
  // The chief.
  Status take_records(size_t max_records, const std::stop_token& stop);
  Status read_cluster_status(const std::stop_token& stop);
  void report(const ServerConnection::Record& record);
  bool request_due_save(uint64_t step);
  // Whether something waits for the state of the servers to be complete.
  bool must_hold() const {
    return is_save_due_ || channels_.is_paused || !setting_requests_.empty();
  }
  Status save_or_pause(const std::stop_token& stop);
  Status wait_while_paused(uint64_t step, const Sums& sums, const std::stop_token& stop);
  Status end_save(const std::stop_token& stop);
  bool is_writer_idle();
  Status save(uint64_t step, const Sums& sums, const std::stop_token& stop);
  void set_sums(const Sums& sums);
  Sums sums_of_state() const;
  Status check_saved();
  Status wait_for_writer(const std::stop_token& stop);
  void publish(control::TrainerState activity);
  // The servers count tickets as if all steps had as many as those of this start.
  uint64_t planned_ticket(uint64_t ticket) const { return ticket + ticket_offset_; }
  uint64_t ticket_after(uint64_t steps) const {
    return planned_ticket(steps * static_cast<uint64_t>(config_.train.gradient_accumulation_steps));
  }

  const config::Config& configured_;
  config::Config config_;   // in effect
  SettingHistory history_;  // of it
  const train::OnSettingChange on_setting_change_;
  const data::order::SamplePlan& plan_;
  train::TrainingState& state_;
  const uint64_t start_step_;
  const uint64_t ticket_offset_;  // modulo 2^64
  ServerConnection& connection_;
  train::TrainerChannels& channels_;
  Clock& clock_;
  std::optional<ChiefDuties> chief_;
  std::stop_source reading_;
  BatchReader reader_;
  train::TrainStep step_;
  std::optional<train::StepInstrumentation> instrumentation_;  // of the chief
  train::SaveTriggers triggers_;
  control::TrainerStatus status_;
  bool stop_requested_ = false;
  bool is_preempted_ = false;  // the launcher starts the run again
  bool is_save_due_ = false;
  bool has_begun_save_ = false;  // the servers hold the state, or are about to
  bool is_last_save_ = false;    // the run ends with the save
  bool has_saved_last_ = false;
  std::optional<uint64_t> saved_step_;  // submitted, or resumed from
  std::optional<uint64_t>
      begun_step_;  // of the parameters that the last gradient was computed from
  // Of the loss, in the micro-batches of begun_step_ that this worker has trained on; nullopt: not counted.
  std::optional<double> num_values_;
  uint64_t checked_step_ = 0;   // for which a save was considered
  uint64_t recorded_step_ = 0;  // of the last record
  std::vector<train::Done> save_requests_;
  std::vector<train::Request> pause_requests_;    // until no parameter changes any more
  std::vector<train::Request> setting_requests_;  // likewise
  std::chrono::nanoseconds reported_at_{0};
  ResourceMeter meter_;
  uint64_t reported_step_ = 0;
  std::chrono::nanoseconds data_wait_{0};  // of this worker, since then
  RemainingTime remaining_;
  std::optional<std::chrono::nanoseconds> status_read_at_;
};

}  // namespace stoker::parameter_server
