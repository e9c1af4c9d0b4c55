#include "daemon/train/trainer.h"

#include <cassert>
#include <cmath>
#include <new>
#include <utility>

#include <c10/util/Exception.h>

#include "daemon/train/group_coordination.h"
#include "daemon/train/make_engine.h"
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

std::unique_ptr<Coordination> make_coordination(group::ProcessGroup* maybe_group,
                                                const config::Config& config, TrainingState& state,
                                                BatchSource& source, TrainerChannels& channels) {
  if (maybe_group == nullptr)
    return std::make_unique<SoloCoordination>(source, config.train.gradient_accumulation_steps);
  return std::make_unique<GroupCoordination>(*maybe_group, config, state, source, channels);
}

std::string describe_data(const checkpoint::Manifest& manifest) {
  return manifest.data_schema ? describe(*manifest.data_schema) : std::string();
}

Checkpointing::Start make_checkpointing_start(TrainerStart& start, uint64_t step) {
  const bool is_resumed = step > 0 || !start.manifest.parent_checkpoint.empty();
  return {.manifest = std::move(start.manifest),
          .metrics_bytes = start.metrics_bytes,
          .save_after_resume = start.save_after_resume,
          .is_saved = is_resumed && start.is_saved};
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
    : config_(config_in_effect(config, state.settings)),
      state_(state),
      source_(source),
      sink_(sink),
      channels_(channels),
      writer_(writer),
      clock_(clock),
      make_engine_(std::move(make_engine)),
      is_sharded_(state.optimizer().is_sharded()),
      ranks_(make_coordination(start.maybe_group, config_, state, source, channels)),
      receiver_(source.shapes(), source.ring().layout(), source.ring().slots()),
      reporter_(config_, state, source, sink, channels, writer, clock, *ranks_,
                describe_data(start.manifest)),
      guard_(config_.train, state),
      instrumentation_(config_.metrics, sink, channels.inspections, clock, state.model(),
                       state.device(), source.ring().layout().sample(),
                       [&source](uint64_t ticket) { return source.files_of(ticket); }),
      update_(config_, state, guard_, *ranks_, instrumentation_),
      checkpointing_(config_, state, source, *ranks_, reporter_, instrumentation_, writer,
                     channels.board, clock, make_checkpointing_start(start, state.step)),
      commands_({.configured = config,
                 .config = config_,
                 .state = state,
                 .channels = channels,
                 .writer = writer,
                 .ranks = *ranks_,
                 .checkpointing = checkpointing_,
                 .instrumentation = instrumentation_,
                 .reporter = reporter_},
                start.has_device_memory, std::move(start.on_setting_change)) {
  if (ranks_->share().length() > 1 || guard_.can_skip()) state.keep_undo();
  if (is_sharded_ && !ranks_->is_chief()) state.save_only_optimizer();
}

Result<TrainerOutcome> Trainer::run(std::stop_token stop) {
  reporter_.start();
  channels_.expects_exchange = ranks_->shares_steps();
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
  const Status lost = can_be_effect ? ranks_->check_lost() : Status();
  const auto ended = lost.ok() ? outcome : Result<TrainerOutcome>(lost);
  if (!ended.ok() || !continues_after(*ended)) commands_.end(ended.status());
  return ended;
}

Result<TrainerOutcome> Trainer::train(std::stop_token stop) {
  STOKER_RETURN_IF_ERROR(open_engine());
  ranks_->start(*engine_, stop);
  checkpointing_.start(clock_.monotonic());
  if (config_.checkpoint.save_at_start && state_.step == 0 && checkpointing_.has_snapshots())
    (void)checkpointing_.try_save(*engine_);
  if (config_.metrics.tensorboard && state_.step == 0) instrumentation_.trace_graph();
  while (state_.step < config_.train.max_steps) {
    instrumentation_.begin_step();
    answer_requests(stop);
    STOKER_RETURN_IF_ERROR(wait_while_paused(stop));
    if (commands_.stops() || stop.stop_requested()) break;
    if (commands_.must_release()) {
      STOKER_ASSIGN_OR_RETURN(const bool is_released, save_for_release());
      if (is_released) return end_segment(TrainerOutcome::kReleased);
      continue;  // paused with its memory
    }
    STOKER_ASSIGN_OR_RETURN(const bool is_switching, save_for_new_dataset_version());
    if (is_switching) return end_segment(TrainerOutcome::kNewDatasetVersion);
    STOKER_ASSIGN_OR_RETURN(const bool has_new_settings, save_for_new_settings());
    if (has_new_settings) return end_segment(TrainerOutcome::kNewSettings);
    STOKER_ASSIGN_OR_RETURN(const bool stepped, do_step(stop));
    if (!stepped) break;
    STOKER_ASSIGN_OR_RETURN(const bool is_finite, report_and_save());
    // A stop that the ranks of a group have agreed on with this step ends the run nevertheless.
    if (!is_finite && commands_.stops()) break;
    if (!is_finite) return roll_back();
    instrumentation_.end_step(state_.step);
  }
  return end_run(stop);
}

// The ranks of a group find the nonfinite value in the same sums, thus after the same step.
TrainerOutcome Trainer::roll_back() {
  channels_.expects_exchange = false;  // until the next segment
  // The run returns to the last checkpoint, which can be in flight.
  checkpointing_.wait_for_writer();
  if (const auto stats = writer_.stats(); stats.degraded)
    log_warn("rollback not reproducible",
             {{"reason", "the newest checkpoint could not be written: " + stats.last_error}});
  checkpointing_.reject_requests(
      Status(StatusCode::kCancelled, "the run is rolled back to the last checkpoint"));
  instrumentation_.finish("the run was rolled back to the last checkpoint");
  return end_segment(TrainerOutcome::kRolledBack);
}

TrainerOutcome Trainer::end_segment(TrainerOutcome outcome) {
  commands_.put_back();
  return outcome;
}

Result<bool> Trainer::save_for_new_dataset_version() {
  if (!ranks_->starts_dataset_version(state_.ticket)) return false;
  return save_for_next_segment("new dataset version");
}

// A nonfinite state must not be saved, so the run does not switch to another segment from it.
Result<bool> Trainer::save_for_next_segment(const std::string& reason) {
  STOKER_RETURN_IF_ERROR(ranks_->wait_for_devices());
  STOKER_ASSIGN_OR_RETURN(const NonfiniteAction action, check_state());
  if (action != NonfiniteAction::kContinue) return false;
  channels_.expects_exchange = false;  // until the next segment
  reporter_.publish(control::TrainerState::kSaving);
  STOKER_RETURN_IF_ERROR(checkpointing_.save_last(*engine_, false));
  instrumentation_.finish(reason);
  return true;
}

Status Trainer::open_engine() {
  const auto calls = update_.calls(
      [this](uint64_t ticket) { source_.ring().release(ticket); },
      {.update = {},
       .update_ema = {},
       .announces_save = [this](uint64_t step) { return checkpointing_.must_announce(step); },
       .report = [this] { return reporter_.rank_report(); }});
  auto made = make_engine_ ? make_engine_(calls)
                           : make_engine(config_.train, state_.device(), source_.ring(),
                                         receiver_.memory(), calls);
  if (!made.ok()) return made.status();
  engine_ = *std::move(made);
  update_.start(*engine_);
  if (const std::string why = state_.model().capture_obstacle(); !why.empty())
    engine_->stop_capturing(why);
  return {};
}

// Saves nothing: copying from the device may fail too, and the last checkpoint is complete.
Status Trainer::failed(const std::exception& error) const {
  const Status status = to_status(error);
  const std::string at = "step " + std::to_string(state_.step + 1);
  if (status.code() != StatusCode::kOutOfMemory) return status.with_context(at);
  return Status(StatusCode::kOutOfMemory, at + ": " + status.message() + "; " +
                                              memory_usage(state_, update_.tree_bytes()) + "; " +
                                              memory_saving_hints(config_));
}

Result<TrainerOutcome> Trainer::end_run(std::stop_token stop) {
  const bool finished = state_.step >= config_.train.max_steps || has_data_ended_;
  reporter_.publish(finished ? control::TrainerState::kSaving : control::TrainerState::kStopping);
  STOKER_RETURN_IF_ERROR(ranks_->wait_for_devices());
  const bool is_alone = is_sharded_ && !finished && !commands_.stops();
  STOKER_ASSIGN_OR_RETURN(const NonfiniteAction action, check_state(is_alone));
  channels_.expects_exchange = false;
  Status ended_alone;
  if (is_alone) {
    // The others are in the next step: they save nothing now, and must learn why this rank ends.
    ended_alone =
        Status(StatusCode::kCancelled,
               "training ended on this rank only, at step " + std::to_string(state_.step) +
                   "; its part of the optimizer state cannot be saved without the others");
    checkpointing_.reject_requests(ended_alone);
  } else if (action == NonfiniteAction::kContinue) {
    STOKER_RETURN_IF_ERROR(checkpointing_.save_last(*engine_, stop.stop_requested()));
  } else {
    log_warn("final checkpoint skipped",
             {{"step", state_.step}, {"reason", "loss, gradient or state not finite"}});
    checkpointing_.wait_for_writer();  // the run continues from the checkpoint in flight
    checkpointing_.reject_requests(guard_.error());
  }
  STOKER_RETURN_IF_ERROR(ended_alone);
  const bool is_finite = action == NonfiniteAction::kContinue;
  if (state_.step >= config_.train.max_steps && is_finite) return TrainerOutcome::kFinished;
  if (has_data_ended_) return TrainerOutcome::kDataExhausted;
  return commands_.is_preempted() ? TrainerOutcome::kPreempted : TrainerOutcome::kStopped;
}

// ---- Requests

void Trainer::answer_requests(std::stop_token stop) {
  commands_.execute_pending();
  if (checkpointing_.has_requests() && !stop.stop_requested() && !is_sharded_) save_for_requests();
}

void Trainer::save_for_requests() {
  const auto action = check_state();
  if (action.ok() && *action == NonfiniteAction::kContinue) {
    (void)checkpointing_.try_save(*engine_);
  } else {
    checkpointing_.reject_requests(action.ok() ? guard_.error() : action.status());
  }
}

// The state is restored from the checkpoint, as after a restart of stokerd.
Result<bool> Trainer::save_for_release() {
  if (writer_.is_degraded()) {
    commands_.reject_release(
        Status(StatusCode::kBusy,
               "training continues from a checkpoint, and checkpoints cannot be "
               "written: " +
                   writer_.stats().last_error));
    return false;
  }
  Result<bool> saved = save_for_next_segment("device memory released");
  if (saved.ok() && *saved) return saved;
  commands_.reject_release(saved.ok() ? guard_.error() : saved.status());
  if (!saved.ok() && !writer_.is_degraded()) return saved;
  STOKER_RETURN_IF_ERROR(checkpointing_.check());
  return false;
}

// At step 0 there is no state to save, from which producers that cannot send again would continue.
Result<bool> Trainer::save_for_new_settings() {
  if (commands_.segment_key().empty() || state_.step == 0) return false;
  // Ranks do not know whether the others have saved, and the ring ends at the last step.
  const bool must_save = ranks_->shares_steps() || state_.step >= commands_.last_step();
  if (!must_save && writer_.is_degraded()) return false;
  Result<bool> saved = save_for_next_segment("new settings");
  if (saved.ok() || must_save || !writer_.is_degraded()) return saved;
  STOKER_RETURN_IF_ERROR(checkpointing_.check());
  log_warn("setting change deferred",
           {{"key", commands_.segment_key()}, {"effective", "after the next checkpoint"}});
  reporter_.publish(control::TrainerState::kTraining);
  return false;
}

Status Trainer::wait_while_paused(std::stop_token stop) {
  // Resumed while the checkpoint of a pause with release was saved.
  if (!channels_.is_paused) channels_.pause_log.resume(state_.step);
  if (!channels_.is_paused || commands_.must_release()) return {};
  channels_.pause_log.pause(state_.step);
  reporter_.publish(control::TrainerState::kPaused);
  const ScopedActivity paused(kPaused);
  const ScopedPhase unwatched(channels_.board, control::TrainerPhase::kUnwatched);
  const nanoseconds began = clock_.monotonic();
  while (channels_.is_paused && !commands_.must_release() && !commands_.stops() &&
         !stop.stop_requested()) {
    if (ranks_->is_chief()) channels_.mailbox.wait(kPollInterval);
    answer_requests(stop);
    STOKER_ASSIGN_OR_RETURN(const auto agreed, ranks_->agree_while_paused());
    commands_.execute(agreed);
    if (ranks_->is_save_agreed()) {
      checkpointing_.wait_for_writer();
      save_for_requests();
    }
  }
  reporter_.add_pause(began, clock_.monotonic());
  if (commands_.must_release()) return {};  // still paused
  channels_.pause_log.resume(state_.step);
  instrumentation_.begin_step();
  reporter_.publish(control::TrainerState::kTraining);
  return {};
}

// ---- One step

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
    if (batch.ok()) reporter_.add_wait(clock_.monotonic() - began);
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
    commands_.execute_pending();
    if (commands_.stops()) return NextBatch();
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
  ranks_->begin_step(state_.step + 1);
  reporter_.begin_step();
  update_.begin();
  double lr = 0;
  const ring::TicketShare& share = ranks_->share();
  const auto parts = static_cast<int64_t>(share.length());
  for (int64_t part = 0; part < parts; ++part) {
    const uint64_t ticket = state_.ticket + share.begin() + static_cast<uint64_t>(part);
    STOKER_ASSIGN_OR_RETURN(const auto batch, next_batch(ticket, stop));
    if (!batch) {
      // An incomplete step is undone, and the ticket stays at the start of the step.
      if (part > 0) update_.undo();
      return false;
    }
    if (state_.step == 0 && part == 0) sink_.report_first_batch(*batch);
    if (part == 0) instrumentation_.on_batch(*batch);
    lr = learning_rate(config_, state_);  // a command can have changed it
    update_.run(*batch, part, lr);
    STOKER_RETURN_IF_ERROR(ranks_->exchange_status());
    channels_.board.record_progress();
  }
  ++state_.loss_steps;
  ++state_.step;
  state_.ticket += static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
  if (const feed::StreamState* const stream = source_.maybe_stream()) state_.stream = *stream;
  reporter_.end_step(lr);
  update_.end();
  STOKER_ASSIGN_OR_RETURN(const auto agreed, ranks_->agree());
  commands_.execute(agreed);
  return true;
}

// ---- After a step

Result<bool> Trainer::report_and_save() {
  STOKER_RETURN_IF_ERROR(checkpointing_.check());
  const bool is_last = state_.step == config_.train.max_steps;
  const bool is_record_due = reporter_.is_record_due();
  // The ranks of a group must find a nonfinite value at the same step.
  if (is_record_due || ranks_->shares_steps() || checkpointing_.due() != SaveReason::kNone) {
    read_steps(/*ends_interval=*/is_record_due);
    // The state must be known to be finite before it is saved. The ranks of a group save the last one together.
    if (is_last)
      STOKER_RETURN_IF_ERROR(
          guard_.check_state(*engine_, *ranks_, NonfiniteGuard::Checked::kByAllRanks).status());
    else if (checkpointing_.due() != SaveReason::kNone)
      engine_->synchronize();
  }
  STOKER_ASSIGN_OR_RETURN(const NonfiniteAction action, guard_.action());
  if (action == NonfiniteAction::kRollBack) return false;
  STOKER_RETURN_IF_ERROR(reduce_on_plateau());
  // The last step is saved by Checkpointing::save_last(), which waits for a free snapshot.
  if (!is_last) STOKER_RETURN_IF_ERROR(save_if_due());
  return guard_.may_continue();
}

// The same on all ranks, which have the sums of all losses. Before a save, which has the result.
Status Trainer::reduce_on_plateau() {
  if (!ends_plateau_interval(config_.scheduler, state_.step)) return {};
  engine_->synchronize();  // for the record of this step, which can find values that are not finite
  STOKER_RETURN_IF_ERROR(guard_.action().status());
  if (!guard_.may_continue()) return {};  // rolls back
  const auto& plateau = std::get<config::ReduceOnPlateauScheduler>(config_.scheduler.schedule);
  const std::optional<double> loss = state_.plateau.take_mean_loss();
  if (!loss || !state_.plateau.add(plateau, *loss, /*is_larger_better=*/false)) return {};
  return can_reduce(plateau, config_.optimizer.lr()) ? commands_.reduce_learning_rate() : Status();
}

// Evaluates the triggers again, because the loss that was just reported can trigger a save.
Status Trainer::save_if_due() {
  const SaveReason reason = checkpointing_.due();
  if (reason == SaveReason::kNone) return {};
  STOKER_ASSIGN_OR_RETURN(const NonfiniteAction action, check_state());
  if (action == NonfiniteAction::kContinue) checkpointing_.save(reason, *engine_);
  return {};
}

void Trainer::read_steps(bool ends_interval) {
  if (!ends_interval) return guard_.read(*engine_);
  guard_.read(*engine_, [this, record = reporter_.begin_record(engine_->device_usage())](
                            const NonfiniteReport& found) {
    checkpointing_.set_metrics_bytes(reporter_.finish_record(record, found));
  });
}

Result<NonfiniteAction> Trainer::check_state(bool is_alone) {
  using Checked = NonfiniteGuard::Checked;
  read_steps(/*ends_interval=*/false);
  const bool checks_own = is_alone || (ranks_->shares_steps() && !is_sharded_);
  return guard_.check_state(*engine_, *ranks_,
                            checks_own ? Checked::kByThisRank : Checked::kByAllRanks);
}

}  // namespace stoker::train
