#include "daemon/parameter_server/replica_trainer.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <boost/json.hpp>
#include <c10/util/ScopeExit.h>

#include "daemon/train/batch_view.h"
#include "daemon/train/layer_decay.h"
#include "daemon/train/parameter_kinds.h"
#include "daemon/train/released_pause.h"
#include "daemon/train/reporter.h"
#include "daemon/train/setting_update.h"
#include "daemon/train/training_error.h"
#include "shared/base/thread_registry.h"
#include "shared/checkpoint/store.h"
#include "shared/config/topology_limits.h"
#include "shared/feed/make_sample_plan.h"
#include "shared/run/batch_sizes.h"

namespace stoker::parameter_server {
namespace {

constexpr ThreadActivity kWaitForTicket{.operation = "wait for a ticket", .is_waiting = true};
constexpr ThreadActivity kWaitForServers{.operation = "wait for parameter servers",
                                         .is_waiting = true};
constexpr ThreadActivity kPaused{.operation = "wait for resume", .is_waiting = true};
constexpr std::chrono::milliseconds kPollInterval{100};
constexpr std::chrono::seconds kStatusInterval{1};
// Others train on while the chief takes records: with a record of each step, it would never end.
constexpr size_t kRecordsPerTicket = 64;
constexpr std::string_view kNumWorkers = "feed.num_workers";

std::vector<uint64_t> sizes_of(const train::NamedTensors& variables) {
  std::vector<uint64_t> bytes;
  for (const auto& [name, tensor] : variables) bytes.push_back(tensor.nbytes());
  return bytes;
}

void copy_numbers(const at::Tensor& tensor, std::span<double> out) {
  const at::Tensor numbers = tensor.to(at::kCPU, at::kDouble).reshape({-1}).contiguous();
  std::copy_n(numbers.const_data_ptr<double>(), numbers.numel(), out.begin());
}

}  // namespace

std::vector<ServerPart> make_server_parts(train::TrainingState& state, size_t num_servers,
                                          config::VariablePlacement placement, bool has_state) {
  const train::NamedTensors variables = train::trained_parameters(state.model());
  const auto servers = place_variables(sizes_of(variables), num_servers, placement);
  std::vector<ServerPart> parts(num_servers);
  std::map<std::string, size_t> server_of;
  for (size_t i = 0; i < variables.size(); ++i) {
    assert(variables[i].second.is_same(state.optimizer().parameters()[i]));
    parts[servers[i]].variables.push_back(i);
    parts[servers[i]].parameters.push_back(variables[i].second);
    server_of[variables[i].first] = servers[i];
  }
  if (!has_state) return parts;
  for (const auto& [name, tensor] : state.optimizer().state())  // "exp_avg.<parameter>"
    parts[server_of.at(name.substr(name.find('.') + 1))].state.push_back(tensor);
  return parts;
}

std::vector<at::Tensor> untrained_tensors(const model::Model& model) {
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : model.named_parameters())
    if (!parameter.value().requires_grad()) tensors.push_back(parameter.value());
  for (const auto& buffer : model.named_buffers())
    if (buffer.value().defined()) tensors.push_back(buffer.value());
  return tensors;
}

bool needs_norm_of_all(const config::Config& config, size_t num_servers) {
  return num_servers > 1 && config.train.max_grad_norm.has_value();
}

Result<VariableStore> make_variable_store(const config::Config& config,
                                          std::unique_ptr<train::TrainingState> state,
                                          size_t server, size_t num_servers,
                                          config::VariablePlacement placement,
                                          const SettingHistory& settings) {
  const train::NamedTensors all = train::trained_parameters(state->model());
  const auto servers = place_variables(sizes_of(all), num_servers, placement);
  const double max_count = train::max_loss_count(config.train, state->model(), state->task());
  STOKER_ASSIGN_OR_RETURN(const train::LrScales lr_scales,
                          train::layer_lr_scales(state->model(), config.optimizer.layer_decay));
  const std::set<std::string> embeddings = train::embedding_parameters(state->model());
  state.reset();  // with the gradients and the optimizer state of all variables
  for (const auto& [name, parameter] : all) parameter.mutable_grad() = at::Tensor();
  if (std::ranges::find(servers, server) == servers.end())
    return Status(StatusCode::kInvalidArgument,
                  "parameter server " + std::to_string(server) + " has none of the " +
                      std::to_string(all.size()) + " variables of the model; use fewer servers");
  STOKER_ASSIGN_OR_RETURN(
      auto optimizer,
      train::Optimizer::create(config.optimizer, config.train, all, {}, {}, lr_scales, embeddings,
                               [&](size_t i) { return servers[i] == server; }));
  return VariableStore(
      std::move(optimizer), static_cast<uint64_t>(config.train.gradient_accumulation_steps),
      [&settings](uint64_t step) { return settings.learning_rate(step); },
      [&settings](uint64_t step) { return settings.is_recorded(step); },
      needs_norm_of_all(config, num_servers), max_count);
}

ReplicaTrainer::ReplicaTrainer(const config::Config& config, const data::Dataset& data,
                               const data::order::SamplePlan& plan, train::TrainingState& state,
                               ServerConnection& connection, train::TrainerChannels& channels,
                               Clock& clock, std::optional<ChiefDuties> chief,
                               std::stop_source reading, train::OnSettingChange on_setting_change)
    : configured_(config),
      config_(config),
      history_(config),
      on_setting_change_(std::move(on_setting_change)),
      plan_(plan),
      state_(state),
      start_step_(state.step),
      ticket_offset_(state.ticket -
                     state.step * static_cast<uint64_t>(config.train.gradient_accumulation_steps)),
      connection_(connection),
      channels_(channels),
      clock_(clock),
      chief_(std::move(chief)),
      reading_(std::move(reading)),
      reader_(data, plan),
      step_(state.model(), state.task(), state.optimizer(), config.train, nullptr, 1),
      triggers_(config_.checkpoint, chief_ && chief_->save_after_resume) {
  // They were accepted when they were set, or when the run was resumed.
  [[maybe_unused]] const Status added = history_.add(own_settings());
  assert(added.ok());
  config_ = history_.newest();
  train::add_settings(config_, state.settings, status_);
  status_.device = state.device().str();
  status_.step = state.step;
  status_.checkpoint.last_saved_step = state.step;
  status_.feed.queue_capacity = 1;
  status_.feed.workers = 1;  // what it does is not measured
  status_.feed.workers_reading = status_.feed.workers_decoding = std::nan("");
  status_.feed.workers_transforming = status_.feed.workers_waiting = std::nan("");
  if (state.step > 0) saved_step_ = state.step;
  checked_step_ = recorded_step_ = state.step;
  if (!chief_) return;
  if (config.train.gradient_accumulation_steps > 1 || step_.max_count() > 0) state.keep_undo();
  instrumentation_.emplace(config_.metrics, chief_->sink, channels.inspections, clock,
                           state.model(), state.device(), data.spec(),
                           [&data, &plan, rows = config.train.micro_batch_size](uint64_t ticket) {
                             return feed::files_of(data, plan, ticket, static_cast<uint64_t>(rows));
                           });
}

Result<run::RunOutcome> ReplicaTrainer::run(const std::stop_token& stop) {
  reported_at_ = clock_.monotonic();
  meter_.begin(reported_at_);
  reported_step_ = state_.step;
  triggers_.start(reported_at_);
  if (chief_) chief_->writer.reserve(state_.snapshot_bytes());
  publish(control::TrainerState::kTraining);
  auto outcome = [&]() -> Result<run::RunOutcome> {
    try {
      return train(stop);
    } catch (const std::exception& error) {
      return train::to_status(error).with_context("step " + std::to_string(state_.step + 1));
    }
  }();
  reading_.request_stop();
  end_requests(outcome.status());
  return outcome;
}

void ReplicaTrainer::end_requests(const Status& failure) {
  const Status ended = train::training_ended(failure);
  if (instrumentation_ && failure.ok()) instrumentation_->finish("training ended");
  if (instrumentation_ && !failure.ok()) instrumentation_->abandon("training ended", ended);
  for (const train::Done& done : std::exchange(save_requests_, {}))
    train::answer(done, failure.ok() ? ended : failure);
  for (const train::Request& pause : std::exchange(pause_requests_, {}))
    train::answer(pause.done, ended);
  for (const train::Request& setting : std::exchange(setting_requests_, {}))
    train::answer(setting.done, ended);
}

Result<run::RunOutcome> ReplicaTrainer::train(const std::stop_token& stop) {
  while (true) {
    execute_commands();
    if (stop.stop_requested()) return Status(StatusCode::kCancelled, "training was stopped");
    const auto stopped = is_preempted_ ? run::RunOutcome::kPreempted : run::RunOutcome::kStopped;
    if (stop_requested_ && !chief_) {
      STOKER_RETURN_IF_ERROR(close_gap(stop));
      return stopped;
    }
    if (chief_) {
      if (stop_requested_) is_save_due_ = is_last_save_ = true;
      if (must_hold() || has_begun_save_) STOKER_RETURN_IF_ERROR(save_or_pause(stop));
      if (has_saved_last_) break;
    }
    ServerConnection::Claimed claimed;
    {
      const ScopedActivity waiting(kWaitForTicket);
      STOKER_ASSIGN_OR_RETURN(claimed, connection_.claim(stop));
    }
    channels_.board.record_progress();
    if (claimed.reply != ClaimReply::kInitialize) STOKER_RETURN_IF_ERROR(take_settings());
    if (chief_) STOKER_RETURN_IF_ERROR(read_cluster_status(stop));
    switch (claimed.reply) {
      case ClaimReply::kWait:
        continue;
      case ClaimReply::kInitialize:
        STOKER_RETURN_IF_ERROR(send_settings(stop));
        STOKER_RETURN_IF_ERROR(connection_.initialize(state_.step, sums_of_state(), stop));
        continue;
      case ClaimReply::kEnded:
        if (!chief_ && claimed.step >= config_.train.max_steps) return run::RunOutcome::kFinished;
        if (!chief_) return claimed.is_preempted ? run::RunOutcome::kPreempted : stopped;
        is_save_due_ = is_last_save_ = true;
        continue;
      case ClaimReply::kGranted:
        break;
    }
    // The save requeues the ticket.
    if (chief_ && request_due_save(claimed.step)) continue;
    STOKER_RETURN_IF_ERROR(train_on(claimed, stop));
    if (chief_) STOKER_RETURN_IF_ERROR(take_records(kRecordsPerTicket, stop));
  }
  const bool is_finished = state_.step >= config_.train.max_steps;
  const auto outcome = is_finished     ? run::RunOutcome::kFinished
                       : is_preempted_ ? run::RunOutcome::kPreempted
                                       : run::RunOutcome::kStopped;
  STOKER_RETURN_IF_ERROR(connection_.end_run(outcome, stop));
  STOKER_RETURN_IF_ERROR(check_saved());
  channels_.mailbox.close();
  return outcome;
}

void ReplicaTrainer::execute_commands() {
  for (const train::Request& request : channels_.mailbox.take()) execute(request);
}

void ReplicaTrainer::execute(const train::Request& request) {
  const control::Command& command = request.command;
  if (const auto* const stopping = std::get_if<control::Stop>(&command)) {
    stop_requested_ = true;
    is_preempted_ |= stopping->is_preemption;
    train::answer_at_step(request.done, state_.step, {{"state", "stopping"}});
  } else if (chief_ && std::holds_alternative<control::SaveCheckpoint>(command)) {
    save_requests_.push_back(request.done);
    is_save_due_ = true;
  } else if (chief_ && std::holds_alternative<control::Pause>(command)) {
    channels_.is_paused = true;
    pause_requests_.push_back(request);
  } else if (chief_ && std::holds_alternative<control::Resume>(command)) {
    answer_pauses();  // if it was not paused yet
    channels_.is_paused = false;
    publish(control::TrainerState::kTraining);  // before the answer, as in train::Commands
    train::answer_at_step(request.done, state_.step, {{"state", "training"}});
  } else if (const auto* const profile = std::get_if<control::Profile>(&command);
             chief_ && profile != nullptr) {
    instrumentation_->profile(*profile, request.done, request.on_progress);
  } else if (const auto* const open = std::get_if<control::OpenInspection>(&command);
             chief_ && open != nullptr) {
    instrumentation_->open_inspection(*open, state_.step, request.done);
  } else if (chief_ && control::changed_setting(command) != nullptr) {
    execute_setting(request);
  } else {
    train::answer(request.done, Status(StatusCode::kInvalidArgument,
                                       "this task takes no commands but `stop`; ask the chief"));
  }
}

void ReplicaTrainer::execute_setting(const train::Request& request) {
  if (*control::changed_setting(request.command) == kNumWorkers)
    return train::answer(request.done,
                         Status(StatusCode::kInvalidArgument,
                                std::string(kNumWorkers) + ": " +
                                    std::string(*config::command_limit(
                                        "set feed.num_workers", config::Topology::kSyncServers))));
  if (!control::is_dry_run(request.command)) return setting_requests_.push_back(request);
  const auto update = train::SettingUpdate::make(configured_, config_, state_, request.command);
  if (!update.ok()) return train::answer(request.done, update.status());
  train::answer_at_step(request.done, state_.step, update->reply());
}

Status ReplicaTrainer::change_settings(uint64_t step, const std::stop_token& stop) {
  if (setting_requests_.empty()) return {};
  state_.step = step;
  channels_.board.set_step(step);
  const bool has_ended = step >= config_.train.max_steps;  // which other workers may know already
  for (; !setting_requests_.empty(); setting_requests_.erase(setting_requests_.begin())) {
    const train::Request& request = setting_requests_.front();
    if (has_ended) {
      train::answer(request.done, train::training_ended());
      continue;
    }
    auto update = train::SettingUpdate::make(configured_, config_, state_, request.command);
    if (!update.ok()) {
      train::answer(request.done, update.status());
      continue;
    }
    SettingsVersion settings = own_settings();
    settings.live.settings = update->changed().live;
    settings.change = update->change();
    STOKER_RETURN_IF_ERROR(connection_.change_settings(settings, stop));
    STOKER_RETURN_IF_ERROR(history_.add(settings));
    const boost::json::object reply = update->reply();
    update->apply(config_, state_);
    train::add_settings(config_, state_.settings, status_);
    publish(control::TrainerState::kTraining);
    if (on_setting_change_) on_setting_change_(step, config_, settings.change);
    train::answer_at_step(request.done, step, reply);
  }
  return {};
}

SettingsVersion ReplicaTrainer::own_settings() const {
  SettingsVersion own{.step = state_.step, .live = {}, .change = {}};
  own.live.settings = state_.settings;
  own.live.lr_scale = state_.lr_scale;
  return own;
}

// Those of the checkpoint, also if a chief before this one has sent others and was lost before the parameters.
Status ReplicaTrainer::send_settings(const std::stop_token& stop) {
  const bool has_sent = !connection_.take_settings().empty();
  if (!has_sent && state_.settings.empty() && state_.lr_scale == 1) return {};
  return connection_.change_settings(own_settings(), stop);
}

// Of the chief, on other workers; on a chief that returns those after its checkpoint, whose record is lost with it.
Status ReplicaTrainer::take_settings() {
  for (const SettingsVersion& settings : connection_.take_settings()) {
    const bool is_of_checkpoint =
        settings.step < start_step_ ||
        (settings.step == start_step_ && settings.live.settings == state_.settings);
    if (chief_ && is_of_checkpoint) continue;
    STOKER_RETURN_IF_ERROR(history_.add(settings));
    state_.settings = settings.live.settings;
    state_.lr_scale = settings.live.lr_scale;
    config_ = history_.newest();
    train::add_settings(config_, state_.settings, status_);
    if (on_setting_change_) on_setting_change_(settings.step, config_, settings.change);
  }
  return {};
}

void ReplicaTrainer::answer_pauses() {
  for (const train::Request& pause : std::exchange(pause_requests_, {})) {
    if (std::get<control::Pause>(pause.command).release)
      train::answer_unreleased(pause.done, state_.step, train::kNoDeviceMemory);
    else
      train::answer_at_step(pause.done, state_.step, {{"state", "paused"}});
  }
}

// ---- one ticket ----------------------------------------------------------------------------------

// If all tasks are stopped, the chief would otherwise compute the tickets alone that others have prefetched.
Status ReplicaTrainer::close_gap(const std::stop_token& stop) {
  const auto gap = connection_.claim_gap(stop);
  // The servers may have been stopped, too.
  if (!gap.ok()) return gap.status().code() == StatusCode::kPeerLost ? Status() : gap.status();
  if (gap->reply != ClaimReply::kGranted) return {};
  channels_.board.record_progress();
  Status trained = train_on(*gap, stop);
  return trained.code() == StatusCode::kPeerLost ? Status() : trained;
}

// The next batch is read while the servers and the gradient of this one are waited for.
Status ReplicaTrainer::train_on(const ServerConnection::Claimed& claimed,
                                const std::stop_token& stop) {
  const auto [ticket, step] = std::pair(claimed.ticket, claimed.step);
  const uint64_t planned = planned_ticket(ticket);
  if (instrumentation_) instrumentation_->enter_step(step + 1);
  STOKER_ASSIGN_OR_RETURN(const feed::ReceivedBatch batch, read_batch(planned, stop));
  if (instrumentation_) instrumentation_->on_batch(batch);
  if (claimed.prefetch) STOKER_RETURN_IF_ERROR(reader_.prefetch(planned_ticket(*claimed.prefetch)));
  {
    const ScopedActivity waiting(kWaitForServers);
    STOKER_RETURN_IF_ERROR(connection_.pull(step, stop));
  }
  state_.step = step;
  channels_.board.set_step(step);
  state_.seed_generators(config_.run.seed, planned);
  if (begun_step_ != step) {
    undo_step_without_values();
    state_.begin_step();
  }
  begun_step_ = step;
  step_.set_observer(maybe_observer());
  step_.add(state_.task().mixed(train::batch_view(batch), config_.run.seed, planned),
            /*is_first=*/true);
  const Sums sums = sums_of_micro_batch();
  if (sums.count >= 0) num_values_ = num_values_.value_or(0) + sums.count;
  STOKER_RETURN_IF_ERROR(push(ticket, step, sums, stop));
  if (instrumentation_) instrumentation_->end_step(step + 1);
  return {};
}

Result<feed::ReceivedBatch> ReplicaTrainer::read_batch(uint64_t ticket,
                                                       const std::stop_token& stop) {
  const train::PhaseScope waiting(maybe_observer(), train::Phase::kDataWait);
  const auto asked_at = clock_.monotonic();
  auto batch = reader_.read(ticket, stop);
  data_wait_ += clock_.monotonic() - asked_at;
  return batch;
}

// The servers update.
Status ReplicaTrainer::push(uint64_t ticket, uint64_t step, const Sums& sums,
                            const std::stop_token& stop) {
  const ScopedActivity waiting(kWaitForServers);
  const auto& gradients = state_.optimizer().gradients();
  const train::PhaseScope updating(maybe_observer(), train::Phase::kOptimizer);
  const auto pushed = connection_.push(ticket, step, sums, gradients, step_.settle_reached(), stop);
  step_.drop();
  return pushed.status();
}

// The servers change nothing for a step without values in the loss, see train::kNoLossValues. Of other workers' micro-
// batches the buffers have nothing, so that only those of this one count.
void ReplicaTrainer::undo_step_without_values() {
  if (num_values_ == 0.0) state_.buffers().restore();
  num_values_.reset();
}

// Those of all micro-batches of a step add up to what one process has.
Sums ReplicaTrainer::sums_of_micro_batch() {
  Sums sums{.loss = step_.loss().item<double>(), .steps = 1};
  if (const at::Tensor& count = step_.maybe_loss_count(); count.defined())
    sums.count = count.item<double>();
  // Of an async step, which has one gradient.
  if (needs_norm_of_all(config_, connection_.num_servers()) &&
      config_.train.gradient_accumulation_steps == 1) {
    const at::Tensor norms = state_.optimizer().gradient_norms();
    sums.norm = norm_to_clip_by(norms, state_.optimizer().clamped_gradient_norms(norms));
  }
  if (!step_.metric_sum().defined()) return sums;
  copy_numbers(step_.metric_sum(), sums.metrics);
  if (step_.maybe_device_count().defined())
    copy_numbers(step_.maybe_device_count(), sums.metric_counts);
  else
    sums.metric_counts[0] = static_cast<double>(step_.metric_count()) /
                            static_cast<double>(config_.train.gradient_accumulation_steps);
  return sums;
}

// ---- records -------------------------------------------------------------------------------------

Status ReplicaTrainer::take_records(size_t max_records, const std::stop_token& stop) {
  for (size_t i = 0; i < max_records; ++i) {
    STOKER_ASSIGN_OR_RETURN(
        const auto record,
        connection_.take_record(recorded_step_, chief_->writer.stats().last_step, stop));
    if (!record) return {};
    report(*record);
    recorded_step_ = record->step;
  }
  return {};
}

// Also while the chief waits for others.
Status ReplicaTrainer::read_cluster_status(const std::stop_token& stop) {
  const auto now = clock_.monotonic();
  if (status_read_at_ && now - *status_read_at_ < kStatusInterval) return {};
  status_read_at_ = now;
  STOKER_ASSIGN_OR_RETURN(status_.cluster, connection_.read_status(stop));
  channels_.board.publish(status_);
  return {};
}

void ReplicaTrainer::report(const ServerConnection::Record& record) {
  const auto now = clock_.monotonic();
  const double seconds = seconds_between(reported_at_, now);
  const auto steps = static_cast<double>(record.step - std::min(record.step, reported_step_));
  const auto samples = static_cast<double>(config_.train.micro_batch_size *
                                           config_.train.gradient_accumulation_steps);
  metrics::TrainMetrics metrics;
  metrics.step = record.step;
  metrics.epoch = plan_.epoch_of(ticket_after(record.step));
  metrics.loss = record.sums.loss / static_cast<double>(record.sums.steps);
  for (size_t i = 0; i < state_.training_metrics().size(); ++i)
    metrics.metrics.emplace_back(state_.training_metrics()[i],
                                 record.sums.metrics[i] / record.sums.metric_counts[i]);
  metrics.lr = history_.learning_rate(record.step - 1);
  metrics.grad_norm = record.grad_norm;
  metrics.samples_seen =
      run::batch_size_at(state_.batch_sizes, record.step, config_.train).samples_after(record.step);
  metrics.samples_per_second = seconds > 0 ? steps * samples / seconds : 0;
  metrics.step_time_ms = steps > 0 ? 1e3 * seconds / steps : 0;
  const double waited = std::chrono::duration<double>(std::exchange(data_wait_, {})).count();
  metrics.data_wait_ms = steps > 0 ? 1e3 * waited / steps : 0;
  metrics.degraded = chief_->writer.is_degraded() ? 1 : 0;
  if (meter_.is_due(now)) metrics.resources = status_.resources = meter_.measure(now);
  metrics.wall_time = to_iso8601(clock_.wall());
  chief_->metrics_bytes = chief_->sink.report(metrics);
  reported_at_ = now;
  reported_step_ = record.step;
  state_.loss_trend.add(metrics.loss);
  train::add_record(metrics, status_);
  remaining_.add(static_cast<uint64_t>(steps), seconds);
  status_.eta_seconds = remaining_.seconds(config_.train.max_steps - metrics.step);
  publish(chief_->writer.is_degraded() ? control::TrainerState::kDegraded
                                       : control::TrainerState::kTraining);
}

void ReplicaTrainer::publish(control::TrainerState activity) {
  const bool is_paused = channels_.is_paused && pause_requests_.empty() && !stop_requested_;
  status_.state = is_paused ? control::TrainerState::kPaused : activity;
  status_.step = state_.step;
  status_.lr = history_.learning_rate(state_.step);
  status_.feed.ready_batches = reader_.has_next() ? 1 : 0;
  if (chief_) train::add_writer(chief_->writer.stats(), status_.checkpoint);
  channels_.board.publish(status_);
  channels_.board.record_progress();
}

// ---- checkpoints ---------------------------------------------------------------------------------

// True: a save has become due. The chief does not see each step, if other workers are faster.
bool ReplicaTrainer::request_due_save(uint64_t step) {
  bool is_due = false;
  for (; checked_step_ < step; ++checked_step_)
    is_due |= triggers_.due(checked_step_ + 1, clock_.monotonic(), state_.loss_trend,
                            chief_->writer.is_degraded()) != train::SaveReason::kNone;
  is_save_due_ |= is_due;
  return is_due;
}

Status ReplicaTrainer::wait_for_writer(const std::stop_token& stop) {
  while (!chief_->writer.wait_idle(kPollInterval)) {
    channels_.board.record_progress();
    STOKER_RETURN_IF_ERROR(connection_.keep_alive(stop));
  }
  return {};
}

Status ReplicaTrainer::check_saved() {
  const auto stats = chief_->writer.stats();
  if (!stats.degraded) return {};
  return Status(StatusCode::kIoError, "the last state could not be saved: " + stats.last_error);
}

// The state does not change until this one has read it, or as long as training is paused.
Status ReplicaTrainer::save_or_pause(const std::stop_token& stop) {
  // Resumed before the state was complete.
  if (!must_hold()) return end_save(stop);
  const bool can_wait =
      !is_last_save_ && !channels_.is_paused && setting_requests_.empty() && !has_begun_save_;
  if (can_wait && !is_writer_idle()) return {};
  has_begun_save_ = true;
  STOKER_ASSIGN_OR_RETURN(const auto begun, connection_.begin_save(stop));
  if (!begun) return {};  // again before the next ticket
  const auto& [step, sums] = *begun;
  STOKER_RETURN_IF_ERROR(take_settings());
  // All of them: their number does not grow during a save.
  STOKER_RETURN_IF_ERROR(take_records(std::numeric_limits<size_t>::max(), stop));
  if (!is_last_save_) STOKER_RETURN_IF_ERROR(change_settings(step, stop));
  if (channels_.is_paused && !is_last_save_)
    STOKER_RETURN_IF_ERROR(wait_while_paused(step, sums, stop));
  if (stop_requested_) is_save_due_ = is_last_save_ = true;
  if (is_save_due_ && (is_last_save_ || is_writer_idle()))
    STOKER_RETURN_IF_ERROR(save(step, sums, stop));
  if (is_last_save_) {
    STOKER_RETURN_IF_ERROR(wait_for_writer(stop));
    has_saved_last_ = true;
    return {};  // end_run() follows; until then there is no update
  }
  return end_save(stop);
}

Status ReplicaTrainer::end_save(const std::stop_token& stop) {
  has_begun_save_ = false;
  return connection_.end_save(stop);
}

bool ReplicaTrainer::is_writer_idle() {
  return chief_->writer.wait_idle(std::chrono::milliseconds(0));
}

// The other workers wait for tickets.
Status ReplicaTrainer::wait_while_paused(uint64_t step, const Sums& sums,
                                         const std::stop_token& stop) {
  state_.step = step;
  channels_.board.set_step(step);
  channels_.pause_log.pause(step);
  publish(control::TrainerState::kPaused);
  answer_pauses();
  const auto began = clock_.monotonic();
  {
    const ScopedActivity paused(kPaused);
    const train::ScopedPhase unwatched(channels_.board, control::TrainerPhase::kUnwatched);
    while (channels_.is_paused && !stop_requested_ && !stop.stop_requested()) {
      if (is_save_due_ && is_writer_idle()) STOKER_RETURN_IF_ERROR(save(step, sums, stop));
      channels_.mailbox.wait(kPollInterval);
      execute_commands();
      answer_pauses();
      STOKER_RETURN_IF_ERROR(change_settings(step, stop));
      STOKER_RETURN_IF_ERROR(connection_.keep_alive(stop));
      STOKER_RETURN_IF_ERROR(read_cluster_status(stop));
    }
  }
  const auto ended = clock_.monotonic();
  reported_at_ += ended - began;
  meter_.begin(ended);  // a pause uses nothing
  instrumentation_->begin_step();
  channels_.pause_log.resume(step);
  publish(control::TrainerState::kTraining);
  return {};
}

Status ReplicaTrainer::save(uint64_t step, const Sums& sums, const std::stop_token& stop) {
  is_save_due_ = false;
  STOKER_RETURN_IF_ERROR(connection_.read_state(step, stop));
  state_.step = step;
  channels_.board.set_step(step);
  state_.ticket = ticket_after(step);
  state_.seed_generators(config_.run.seed, state_.ticket);
  set_sums(sums);
  STOKER_RETURN_IF_ERROR(wait_for_writer(stop));
  const bool is_saved = saved_step_ == step && !chief_->writer.is_degraded();
  if (is_saved || step == 0) {
    for (const train::Done& done : std::exchange(save_requests_, {}))
      train::answer_at_step(done, step, {{"already_saved", true}});
    return {};
  }
  if (begun_step_ != step) undo_step_without_values();
  // Without what the chief has computed of the step after this one, which a resumed run repeats.
  const bool is_ahead = begun_step_ == step && config_.train.gradient_accumulation_steps > 1;
  if (is_ahead) state_.buffers().swap();
  const auto restore = c10::make_scope_exit([&] {
    if (is_ahead) state_.buffers().swap();
  });
  if (const std::string nonfinite = state_.first_nonfinite(); !nonfinite.empty())
    return train::nonfinite_error(nonfinite, step);
  writer::Snapshot* const snapshot = chief_->writer.try_begin();
  if (snapshot == nullptr)
    return Status(StatusCode::kInternal, "the checkpoint writer rejected the snapshot");
  snapshot->manifest() = chief_->manifest;
  snapshot->begin();
  state_.copy_to(*snapshot);
  state_.describe(snapshot->manifest());
  snapshot->manifest().epoch = plan_.epoch_of(state_.ticket);
  snapshot->manifest().metrics_bytes = chief_->metrics_bytes;
  saved_step_ = step;
  triggers_.record_save(clock_.monotonic());
  chief_->manifest.parent_checkpoint = checkpoint::CheckpointStore::checkpoint_name(step);
  chief_->writer.submit(
      [waiting = std::exchange(save_requests_, {})](Result<checkpoint::Manifest> result) {
        for (const train::Done& done : waiting) {
          if (result.ok())
            train::answer_at_step(done, result->step);
          else
            train::answer(done, result.status());
        }
      });
  publish(control::TrainerState::kSaving);
  return {};
}

void ReplicaTrainer::set_sums(const Sums& sums) {
  state_.loss_sum.fill_(sums.loss);
  state_.loss_steps = sums.steps;
  for (size_t i = 0; i < state_.training_metrics().size(); ++i) {
    state_.metric_sum.select(0, static_cast<int64_t>(i)).fill_(sums.metrics[i]);
    state_.metric_count.select(0, static_cast<int64_t>(i)).fill_(sums.metric_counts[i]);
  }
}

Sums ReplicaTrainer::sums_of_state() const {
  Sums sums{.loss = state_.loss_sum.item<double>(), .steps = state_.loss_steps};
  if (!state_.metric_sum.defined()) return sums;
  copy_numbers(state_.metric_sum, sums.metrics);
  copy_numbers(state_.metric_count, sums.metric_counts);
  return sums;
}

}  // namespace stoker::parameter_server
