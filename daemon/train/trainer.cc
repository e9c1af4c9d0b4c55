#include "daemon/train/trainer.h"

#include <cassert>
#include <cmath>
#include <new>
#include <utility>

#include <c10/util/Exception.h>

#include "daemon/train/make_engine.h"
#include "daemon/train/schedule.h"
#include "daemon/train/training_error.h"
#include "shared/base/log.h"
#include "shared/base/thread_registry.h"

namespace stoker::train {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
constexpr milliseconds kBusyPollInterval{1};  // poll interval while device work is pending
constexpr ThreadActivity kWaitForBatch{.operation = "wait for batch", .is_waiting = true};
constexpr ThreadActivity kPaused{.operation = "wait for resume", .is_waiting = true};

ring::TicketShare all_tickets(int64_t micro_batches) {
  return {.tickets_per_step = static_cast<uint64_t>(micro_batches)};
}

std::optional<GroupStep> make_group_step(group::ProcessGroup* maybe_group, int64_t micro_batches,
                                         const model::Model& model) {
  if (maybe_group == nullptr) return std::nullopt;
  return std::optional<GroupStep>(std::in_place, *maybe_group, micro_batches,
                                  shared_buffers(model));
}

std::unique_ptr<GradientBuckets> make_buckets(group::ProcessGroup* maybe_group,
                                              const config::DistributedConfig& config,
                                              const Optimizer& optimizer) {
  if (maybe_group == nullptr || config.reduction != config::Reduction::kAllReduce) return nullptr;
  return std::make_unique<GradientBuckets>(*maybe_group, optimizer, config.bucket_mib);
}

// After an error, what ends the segment must not be taken for a hang.
class EndOfExchanges {
 public:
  explicit EndOfExchanges(TrainerChannels& channels) : channels_(channels) {}
  ~EndOfExchanges() { channels_.expects_exchange = false; }
  EndOfExchanges(const EndOfExchanges&) = delete;
  EndOfExchanges& operator=(const EndOfExchanges&) = delete;

 private:
  TrainerChannels& channels_;
};

// Whether another segment follows.
bool continues_after(TrainerOutcome outcome) {
  switch (outcome) {
    case TrainerOutcome::kFinished:
    case TrainerOutcome::kDataExhausted:
    case TrainerOutcome::kStopped:
    case TrainerOutcome::kPreempted:
      return false;
    case TrainerOutcome::kRolledBack:
    case TrainerOutcome::kNewDatasetVersion:
    case TrainerOutcome::kNewSettings:
    case TrainerOutcome::kReleased:
      return true;
  }
  return false;
}

// The state has only settings that resume_live() or set_live() accepted.
config::Config config_in_effect(const config::Config& configured,
                                const config::LiveSettings& live) {
  auto config = config::with_live_settings(configured, live);
  assert(config.ok());
  return *std::move(config);
}

}  // namespace

Trainer::Trainer(const config::Config& config, TrainingState& state, BatchSource& source,
                 MetricsSink& sink, TrainerChannels& channels, writer::CheckpointWriter& writer,
                 Clock& clock, TrainerStart start, StepEngine::Factory make_engine)
    : configured_(config),
      config_(config_in_effect(config, state.settings)),
      state_(state),
      source_(source),
      sink_(sink),
      channels_(channels),
      writer_(writer),
      clock_(clock),
      make_engine_(std::move(make_engine)),
      uses_tree_(config.distributed.reduction == config::Reduction::kOrdered),
      maybe_group_(make_group_step(start.maybe_group, config.train.gradient_accumulation_steps,
                                   state.model())),
      maybe_buckets_(make_buckets(start.maybe_group, config.distributed, state.optimizer())),
      share_(maybe_group_ ? maybe_group_->share()
                          : all_tickets(config.train.gradient_accumulation_steps)),
      receiver_(source.shapes(), source.ring().layout(), source.ring().slots()),
      manifest_(std::move(start.manifest)),
      metrics_bytes_(start.metrics_bytes),
      step_(state.model(), state.task(), state.optimizer(), config_.train, state.loss_scale(),
            static_cast<int64_t>(share_.length())),
      guard_(config_.train, state),
      triggers_(config_.checkpoint, start.save_after_resume),
      instrumentation_(config_.metrics, sink, channels.inspections, clock, state.model(),
                       state.device(), source),
      on_setting_change_(std::move(start.on_setting_change)),
      has_device_memory_(start.has_device_memory),
      last_step_(config_.train.max_steps),
      is_sharded_(state.optimizer().is_sharded()) {
  if (share_.length() > 1 || guard_.can_skip()) state.keep_undo();
  publish_settings();
  status_.device = state.device().str();
  if (manifest_.data_schema) status_.data = describe(*manifest_.data_schema);
  status_.step = state.step;
  status_.lr = learning_rate();
  status_.checkpoint.last_saved_step = state.step;
  const bool is_resumed = state.step > 0 || !manifest_.parent_checkpoint.empty();
  if (is_resumed && start.is_saved) maybe_submitted_step_ = state.step;
  if (!start.maybe_group) return;
  if (is_sharded_ && !may_save()) state.save_only_optimizer();
  for (const auto& [name, tensor] : state.optimizer().state()) optimizer_bytes_ += tensor.nbytes();
  const auto world_size = static_cast<size_t>(start.maybe_group->world_size());
  num_quarantined_sent_ = state.quarantined.size();
  num_quarantined_.assign(world_size, num_quarantined_sent_);
  quarantined_of_others_.resize(world_size);
  rank_totals_.resize(world_size);
}

Result<TrainerOutcome> Trainer::run(std::stop_token stop) {
  stop_ = stop;
  interval_.started = clock_.monotonic();
  triggers_.start(interval_.started);
  channels_.board.set_step(state_.step);
  publish(control::TrainerState::kTraining);
  channels_.expects_exchange = maybe_group_.has_value();
  const EndOfExchanges end(channels_);
  const auto outcome = [&]() -> Result<TrainerOutcome> {
    try {
      return train(stop);
    } catch (const c10::Error& error) {
      return failed(error);
    } catch (const std::bad_alloc& error) {
      return failed(error);
    }
  }();
  // Then a loss that is not finite, or an error of the device, is that of collectives that were ended.
  const bool can_be_effect = outcome.ok() ? *outcome == TrainerOutcome::kRolledBack
                                          : outcome.status().code() != StatusCode::kPeerLost;
  const Status lost = maybe_group_ && can_be_effect ? maybe_group_->group().check_lost() : Status();
  const auto ended = lost.ok() ? outcome : Result<TrainerOutcome>(lost);
  if (!ended.ok() || !continues_after(*ended)) end_requests(ended.status());
  return ended;
}

Result<TrainerOutcome> Trainer::train(std::stop_token stop) {
  STOKER_RETURN_IF_ERROR(open_engine());
  if (has_snapshots()) writer_.reserve(state_.snapshot_bytes());
  if (config_.checkpoint.save_at_start && state_.step == 0 && has_snapshots()) (void)try_save();
  if (config_.metrics.tensorboard && state_.step == 0) instrumentation_.trace_graph();
  while (state_.step < config_.train.max_steps) {
    instrumentation_.begin_step();
    answer_requests(stop);
    STOKER_RETURN_IF_ERROR(wait_while_paused(stop));
    if (stop_requested_ || stop.stop_requested()) break;
    if (!channels_.release_requests.empty()) {
      STOKER_ASSIGN_OR_RETURN(const bool is_released, save_for_release());
      if (is_released) return end_segment(TrainerOutcome::kReleased);
      continue;  // paused with its memory
    }
    STOKER_ASSIGN_OR_RETURN(const bool is_switching, switch_dataset_version());
    if (is_switching) return end_segment(TrainerOutcome::kNewDatasetVersion);
    STOKER_ASSIGN_OR_RETURN(const bool has_new_settings, save_for_new_settings());
    if (has_new_settings) return end_segment(TrainerOutcome::kNewSettings);
    STOKER_ASSIGN_OR_RETURN(const bool stepped, do_step(stop));
    if (!stepped) break;
    STOKER_ASSIGN_OR_RETURN(const bool is_finite, report_and_save());
    // A stop that the ranks of a group have agreed on with this step ends the run nevertheless.
    if (!is_finite && stop_requested_) break;
    if (!is_finite) return roll_back();
    instrumentation_.end_step(state_.step);
  }
  return end_run(stop);
}

// The ranks of a group find the nonfinite value in the same sums, thus after the same step.
TrainerOutcome Trainer::roll_back() {
  channels_.expects_exchange = false;  // until the next segment
  // The run returns to the last checkpoint, which can be in flight.
  wait_for_writer();
  reject_saving(Status(StatusCode::kCancelled, "the run is rolled back to the last checkpoint"));
  instrumentation_.finish("the run was rolled back to the last checkpoint");
  return end_segment(TrainerOutcome::kRolledBack);
}

TrainerOutcome Trainer::end_segment(TrainerOutcome outcome) {
  return_deferred();
  return outcome;
}

// In a group the chief knows of new data, and announces the version with the step before.
Result<bool> Trainer::switch_dataset_version() {
  const bool starts_version =
      maybe_group_ ? is_refresh_agreed_ : source_.has_new_version_at(state_.ticket);
  if (!starts_version) return false;
  return save_for_next_segment("new dataset version");
}

// A nonfinite state must not be saved, so the run does not switch to another segment from it.
Result<bool> Trainer::save_for_next_segment(const std::string& reason) {
  if (maybe_group_) STOKER_RETURN_IF_ERROR(maybe_group_->group().wait_for_devices({}));
  STOKER_ASSIGN_OR_RETURN(const NonfiniteGuard::NonfiniteAction action,
                          read_device_metrics_blocking());
  if (action != NonfiniteGuard::NonfiniteAction::kContinue) return false;
  channels_.expects_exchange = false;  // until the next segment
  publish(control::TrainerState::kSaving);
  STOKER_RETURN_IF_ERROR(save_last(false));
  instrumentation_.finish(reason);
  return true;
}

Status Trainer::open_engine() {
  const auto work = [this](const task::Batch& batch, MicroBatchInfo micro_batch) {
    this->work(batch, micro_batch);
  };
  const auto prepare = [this](task::Batch batch, uint64_t ticket, MicroBatchInfo micro_batch) {
    const PhaseScope copying(observer_of(micro_batch), Phase::kCopy);
    return state_.task().mixed(std::move(batch), config_.run.seed, ticket);
  };
  const auto release = [this](uint64_t ticket) { source_.ring().release(ticket); };
  StepEngine::Calls calls{prepare, work, release, exchanges()};
  if (maybe_buckets_)
    calls.sums = {.count = maybe_buckets_->size(),
                  .start = [this](size_t bucket) { maybe_buckets_->start(bucket); }};
  auto made = make_engine_ ? make_engine_(calls)
                           : make_engine(config_.train, state_.device(), source_.ring(),
                                         receiver_.memory(), calls);
  if (!made.ok()) return made.status();
  engine_ = *std::move(made);
  if (engine_->is_asynchronous()) state_.optimizer().use_device_lr();
  return {};
}

// Other steps may run later than the call, when another step is instrumented or none.
StepObserver* Trainer::observer_of(MicroBatchInfo micro_batch) {
  return micro_batch.is_instrumented ? instrumentation_.maybe_observer() : nullptr;
}

// Saves nothing: copying from the device may fail too, and the last checkpoint is complete.
Status Trainer::failed(const std::exception& error) const {
  const Status status = to_status(error);
  const std::string at = "step " + std::to_string(state_.step + 1);
  if (status.code() != StatusCode::kOutOfMemory) return status.with_context(at);
  return Status(StatusCode::kOutOfMemory, at + ": " + status.message() + "; " +
                                              memory_usage(state_, step_.tree_bytes()) + "; " +
                                              memory_saving_hints(config_));
}

Result<TrainerOutcome> Trainer::end_run(std::stop_token stop) {
  const bool finished = state_.step >= config_.train.max_steps || has_data_ended_;
  publish(finished ? control::TrainerState::kSaving : control::TrainerState::kStopping);
  if (maybe_group_) STOKER_RETURN_IF_ERROR(maybe_group_->group().wait_for_devices({}));
  const bool is_alone = is_sharded_ && !finished && !stop_requested_;
  STOKER_ASSIGN_OR_RETURN(const NonfiniteGuard::NonfiniteAction action,
                          read_device_metrics_blocking(is_alone));
  channels_.expects_exchange = false;
  Status ended_alone;
  if (is_alone) {
    // The others are in the next step: they save nothing now, and must learn why this rank ends.
    ended_alone =
        Status(StatusCode::kCancelled,
               "training ended on this rank only, at step " + std::to_string(state_.step) +
                   "; its part of the optimizer state cannot be saved without the others");
    reject_saving(ended_alone);
  } else if (action == NonfiniteGuard::NonfiniteAction::kContinue) {
    STOKER_RETURN_IF_ERROR(save_last(stop.stop_requested()));
  } else {
    log_warn("final checkpoint skipped",
             {{"step", state_.step}, {"reason", "loss, gradient or state not finite"}});
    wait_for_writer();  // the run continues from the checkpoint in flight
    reject_saving(nonfinite_state());
  }
  STOKER_RETURN_IF_ERROR(ended_alone);
  const bool is_finite = action == NonfiniteGuard::NonfiniteAction::kContinue;
  if (state_.step >= config_.train.max_steps && is_finite) return TrainerOutcome::kFinished;
  if (has_data_ended_) return TrainerOutcome::kDataExhausted;
  return is_preempted_ ? TrainerOutcome::kPreempted : TrainerOutcome::kStopped;
}

// ---- Requests

void Trainer::answer_requests(std::stop_token stop) {
  execute_commands();
  if (!save_requests_.empty() && !stop.stop_requested() && !is_sharded_) save_for_requests();
}

void Trainer::save_for_requests() {
  const auto action = read_device_metrics_blocking();
  if (action.ok() && *action == NonfiniteGuard::NonfiniteAction::kContinue) {
    (void)try_save();
  } else {
    reject_saving(action.ok() ? nonfinite_state() : action.status());
  }
}

Status Trainer::nonfinite_state() const {
  if (!nonfinite_action_.ok()) return nonfinite_action_.status();
  return nonfinite_error("loss, gradient or state", state_.step);
}

// The state is restored from the checkpoint, as after a restart of stokerd.
Result<bool> Trainer::save_for_release() {
  if (writer_.is_degraded()) {
    reject_release(Status(StatusCode::kBusy,
                          "training continues from a checkpoint, and checkpoints cannot be "
                          "written: " +
                              writer_.stats().last_error));
    return false;
  }
  Result<bool> saved = save_for_next_segment("device memory released");
  if (saved.ok() && *saved) return saved;
  reject_release(saved.ok() ? nonfinite_state() : saved.status());
  if (!saved.ok() && !writer_.is_degraded()) return saved;
  STOKER_RETURN_IF_ERROR(check_saving());
  return false;
}

void Trainer::reject_release(const Status& why) {
  for (const Done& done : std::exchange(channels_.release_requests, {})) answer(done, why);
}

void Trainer::reject_saving(const Status& why) {
  save_progress_.clear();
  for (const Done& done : std::exchange(save_requests_, {})) answer(done, why);
}

// Replies to all that have no reply yet, and to those that come later: no segment follows.
void Trainer::end_requests(const Status& failure) {
  const Status ended = training_ended(failure);
  if (failure.ok())
    instrumentation_.finish("training ended");
  else
    instrumentation_.abandon("training ended", ended);
  reject_saving(ended);
  reject_release(ended);
  for (const Request& request : std::exchange(shared_requests_, {})) answer(request.done, ended);
  for (const Done& done : std::exchange(stop_requests_, {})) answer(done, ended);
  channels_.mailbox.close(ended);
}

void Trainer::execute_commands() {
  for (const Request& request : channels_.mailbox.take()) {
    if (const Status possible = check_command(request.command); !possible.ok()) {
      answer(request.done, possible);
      continue;
    }
    if (defer(request)) continue;
    std::visit(
        [&](const auto& command) {
          if constexpr (requires { execute(command, request.done, request.on_progress); })
            execute(command, request.done, request.on_progress);
          else
            execute(command, request.done);
        },
        request.command);
  }
}

void Trainer::answer_at_step(const Done& done, const std::string& field) const {
  answer(done, "{\"step\":" + std::to_string(state_.step) + "," + field + "}");
}

void Trainer::execute(const control::Pause& pause, const Done& done) {
  channels_.is_paused = true;
  publish(activity());  // before the answer, which a request for the status can follow
  if (!pause.release) return answer_at_step(done, R"("state":"paused")");
  if (!has_device_memory_)
    return answer_at_step(
        done, R"("state":"paused","released":false,"reason":"training on the CPU has no memory of )"
              R"(a device to release")");
  if (state_.step == 0)
    return answer_at_step(done, R"("state":"paused","released":false,"reason":"the run has no )"
                                R"(step that it could continue from")");
  channels_.release_requests.push_back(done);
}

void Trainer::execute(const control::Resume&, const Done& done) {
  channels_.is_paused = false;
  publish(activity());
  answer_at_step(done, R"("state":"training")");
}

void Trainer::execute(const control::SaveCheckpoint&, const Done& done,
                      const OnProgress& on_progress) {
  save_requests_.push_back(done);
  if (on_progress) save_progress_.push_back(on_progress);
}

void Trainer::execute(const control::Stop& stop, const Done& done) {
  stop_requested_ = true;
  if (stop.is_preemption) is_preempted_ = true;
  answer_at_step(done, R"("state":"stopping")");
}

void Trainer::execute(const control::Profile& command, const Done& done,
                      const OnProgress& on_progress) {
  instrumentation_.profile(command, done, on_progress);
}

void Trainer::execute(const control::OpenInspection& command, const Done& done) {
  instrumentation_.open_inspection(command, state_.step, done);
}

Status Trainer::wait_while_paused(std::stop_token stop) {
  // Resumed while the checkpoint of a pause with release was saved.
  if (!channels_.is_paused) channels_.pause_log.resume(state_.step);
  if (!channels_.is_paused || !channels_.release_requests.empty()) return {};
  channels_.pause_log.pause(state_.step);
  publish(control::TrainerState::kPaused);
  const ScopedActivity paused(kPaused);
  const ScopedPhase unwatched(channels_.board, control::TrainerPhase::kUnwatched);
  const nanoseconds began = clock_.monotonic();
  while (channels_.is_paused && channels_.release_requests.empty() && !stop_requested_ &&
         !stop.stop_requested()) {
    if (may_save()) channels_.mailbox.wait(kPollInterval);
    answer_requests(stop);
    if (maybe_group_) STOKER_RETURN_IF_ERROR(agree_while_paused());
  }
  interval_.paused += clock_.monotonic() - began;
  if (!channels_.release_requests.empty()) return {};  // still paused
  channels_.pause_log.resume(state_.step);
  instrumentation_.begin_step();
  publish(control::TrainerState::kTraining);
  return {};
}

// ---- One step

double Trainer::learning_rate_of(const config::Config& config) const {
  return state_.lr_scale * train::learning_rate(config.scheduler, config.optimizer.lr(),
                                                state_.step, config.train.max_steps);
}

// nullopt: training ends here.
Result<std::optional<feed::ReceivedBatch>> Trainer::next_batch(uint64_t ticket,
                                                               std::stop_token stop) {
  using NextBatch = std::optional<feed::ReceivedBatch>;
  const PhaseScope waiting(instrumentation_.maybe_observer(), Phase::kDataWait);
  const ScopedActivity activity(kWaitForBatch);
  const ScopedPhase phase(channels_.board, control::TrainerPhase::kData);
  const nanoseconds began = clock_.monotonic();
  while (true) {
    // Polls more often while the device still reads slots that the workers wait for.
    auto batch = source_.ring().pop(engine_->poll() ? kBusyPollInterval : kPollInterval);
    interval_.waited += batch.ok() ? clock_.monotonic() - began : nanoseconds(0);
    if (batch.ok() && batch->ticket != ticket)
      return Status(StatusCode::kInternal, "the ring returned the batch of ticket " +
                                               std::to_string(batch->ticket) + " instead of " +
                                               std::to_string(ticket));
    if (batch.ok()) {
      const feed::ReceivedBatch received = receiver_.receive(*batch);
      return source_.accept(received) ? NextBatch(received) : NextBatch();
    }
    if (batch.status().code() == StatusCode::kClosed) {
      has_data_ended_ = !source_.ring().closed();
      return NextBatch();
    }
    if (batch.status().code() != StatusCode::kTimedOut) return batch.status();
    if (stop.stop_requested()) return NextBatch();
    if (source_.waits_for_producer()) channels_.board.record_progress();  // no hang
    // Commands are also handled while waiting for data. Only stop takes effect here; pause and
    // checkpoint wait until the step is done.
    execute_commands();
    if (stop_requested_) return NextBatch();
  }
}

Result<bool> Trainer::do_step(std::stop_token stop) {
  channels_.board.set_phase(control::TrainerPhase::kStep);
  if (state_.changes_frozen()) {
    engine_->synchronize();
    state_.update_frozen();
    engine_->drop_captured_work();
  }
  instrumentation_.enter_step(state_.step + 1);
  if (maybe_group_) maybe_group_->group().begin_step(state_.step + 1);
  step_start_ = clock_.monotonic();
  waited_before_step_ = interval_.waited;
  const auto parts = static_cast<int64_t>(share_.length());
  if (parts > 1) engine_->submit([this] { step_began_ = state_.mark(); });
  for (int64_t part = 0; part < parts; ++part) {
    const uint64_t ticket = state_.ticket + share_.begin() + static_cast<uint64_t>(part);
    STOKER_ASSIGN_OR_RETURN(const auto batch, next_batch(ticket, stop));
    if (!batch) {
      // An incomplete step is undone, and the ticket stays at the start of the step.
      if (part > 0) {
        engine_->submit([this] {
          state_.rewind(*step_began_);
          step_.drop();
        });
      }
      return false;
    }
    if (state_.step == 0 && part == 0) sink_.report_first_batch(*batch);
    if (part == 0) instrumentation_.on_batch(*batch);
    const MicroBatchInfo micro_batch{
        .is_first = part == 0,
        .is_last = part + 1 == parts,
        .is_instrumented = instrumentation_.maybe_observer() != nullptr,
        .level = uses_tree_ ? SumTree::level_of(part) : 0};
    if (micro_batch.is_last) {
      step_lr_ = learning_rate();
      engine_->submit([this, lr = step_lr_] { state_.optimizer().set_lr(lr); });
    }
    if (config_.run.rng == config::Rng::kPerTicket) seed_generators(batch->ticket);
    engine_->run(*batch, micro_batch);
    STOKER_RETURN_IF_ERROR(group_status_);
    channels_.board.record_progress();
  }
  ++state_.loss_steps;
  ++state_.step;
  state_.ticket += static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
  if (const feed::StreamState* const stream = source_.maybe_stream()) state_.stream = *stream;
  ++interval_.steps;
  channels_.board.set_step(state_.step);
  // The state does not depend on which micro-batches this process has trained on.
  if (config_.run.rng == config::Rng::kPerTicket) seed_generators(state_.ticket);
  if (maybe_group_) STOKER_RETURN_IF_ERROR(apply_agreed());
  return true;
}

void Trainer::seed_generators(uint64_t ticket) {
  engine_->submit([this, ticket] { state_.seed_generators(config_.run.seed, ticket); });
}

void Trainer::work(const task::Batch& batch, MicroBatchInfo micro_batch) {
  if (micro_batch.is_instrumented) instrumentation_.on_micro_batch(batch);
  step_.set_observer(observer_of(micro_batch));
  if (micro_batch.is_first) state_.begin_step();
  GradientBuckets* const maybe_buckets = micro_batch.is_last ? maybe_buckets_.get() : nullptr;
  if (maybe_buckets != nullptr)
    maybe_buckets->begin([this](size_t bucket) { engine_->on_gradients_complete(bucket); });
  step_.add(batch, micro_batch.is_first || uses_tree_);
  if (maybe_buckets != nullptr) maybe_buckets->end();
  if (uses_tree_) step_.add_to_tree(micro_batch.level, micro_batch.is_last);
  if (micro_batch.is_last && !maybe_group_) update();
}

void Trainer::update() {
  guard_.finish(step_);
  const at::Tensor& maybe_skipped = state_.optimizer().skipped();
  if (maybe_skipped.defined() && (engine_->is_asynchronous() || is_skipped()))
    state_.undo_if(maybe_skipped);
  if (!is_sharded_) update_ema();
}

void Trainer::update_ema() {
  if (state_.ema_weights() == nullptr) return;
  if (engine_->is_asynchronous())
    state_.ema_weights()->update(state_.optimizer().skipped());
  else if (!is_skipped())
    state_.ema_weights()->update();
}

bool Trainer::is_skipped() const {
  const at::Tensor& maybe_skipped = state_.optimizer().skipped();
  return maybe_skipped.defined() && maybe_skipped.item<double>() != 0;
}

}  // namespace stoker::train
