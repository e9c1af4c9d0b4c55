#include "daemon/train/checkpointing.h"

#include <limits>
#include <utility>

#include "daemon/train/stream_tensors.h"
#include "shared/base/log.h"
#include "shared/checkpoint/store.h"

namespace stoker::train {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

namespace {

constexpr milliseconds kPollInterval{100};

}  // namespace

Checkpointing::Checkpointing(const config::Config& config, TrainingState& state,
                             BatchSource& source, Coordination& ranks, Reporter& reporter,
                             StepInstrumentation& instrumentation, writer::CheckpointWriter& writer,
                             StatusBoard& board, Clock& clock, Start start)
    : config_(config),
      state_(state),
      source_(source),
      ranks_(ranks),
      reporter_(reporter),
      instrumentation_(instrumentation),
      writer_(writer),
      board_(board),
      clock_(clock),
      is_sharded_(state.optimizer().is_sharded()),
      triggers_(config.checkpoint, start.save_after_resume),
      manifest_(std::move(start.manifest)),
      metrics_bytes_(start.metrics_bytes) {
  if (start.is_saved) maybe_submitted_step_ = state.step;
}

void Checkpointing::start(nanoseconds now) {
  triggers_.start(now);
  if (has_snapshots()) writer_.reserve(state_.snapshot_bytes());
}

// ---- Requests

void Checkpointing::request(const Done& done, const OnProgress& on_progress) {
  requests_.push_back(done);
  if (on_progress) progress_.push_back(on_progress);
}

void Checkpointing::reject_requests(const Status& why) {
  progress_.clear();
  for (const Done& done : std::exchange(requests_, {})) answer(done, why);
}

// ---- Saves

SaveReason Checkpointing::due() {
  if (is_sharded_) return ranks_.is_save_agreed() ? SaveReason::kAnnounced : SaveReason::kNone;
  if (!ranks_.is_chief()) return SaveReason::kNone;
  return triggers_.due(state_.step, clock_.monotonic(), state_.loss_trend, writer_.is_degraded());
}

bool Checkpointing::must_announce(uint64_t step) {
  if (step == config_.train.max_steps) return false;  // saved at the end
  const SaveReason reason =
      triggers_.due(step, clock_.monotonic(), state_.loss_trend, writer_.is_degraded());
  const bool is_due = (reason != SaveReason::kNone && step != state_.step) || has_requests();
  if (!is_due) return false;
  if (reason == SaveReason::kSteps && step != state_.step && must_save_each()) stall_for_writer();
  if (writer_.wait_idle(milliseconds(0))) return true;
  // Once: a pause asks again and again.
  if (reason == SaveReason::kSteps && step != state_.step) record_skipped(step);
  return false;
}

void Checkpointing::save(SaveReason reason, StepEngine& engine) {
  if (reason == SaveReason::kAnnounced) wait_for_writer();
  if (reason == SaveReason::kSteps && must_save_each()) stall_for_writer();
  if (reason == SaveReason::kNone || try_save(engine) || reason != SaveReason::kSteps) return;
  record_skipped(state_.step);
}

// To which checkpoint a run rolls back must not depend on the disk: then results of one configuration would differ.
bool Checkpointing::must_save_each() const {
  return config_.train.on_nonfinite == config::OnNonfinite::kRollback;
}

// Other ranks wait for this one for distributed.timeout_seconds.
void Checkpointing::stall_for_writer() {
  const ScopedPhase phase(board_, control::TrainerPhase::kUnwatched);
  const nanoseconds began = clock_.monotonic();
  const double limit = ranks_.shares_steps() ? config_.distributed.timeout_seconds / 2
                                             : std::numeric_limits<double>::infinity();
  while (!writer_.wait_idle(kPollInterval)) {
    board_.record_progress();
    if (seconds_between(began, clock_.monotonic()) < limit) continue;
    log_warn("rollback not reproducible",
             {{"reason",
               "a checkpoint was not written within half of distributed.timeout_seconds, "
               "and the next one is skipped"}});
    break;
  }
  reporter_.add_stall(clock_.monotonic() - began);
}

void Checkpointing::record_skipped(uint64_t step) {
  writer_.increment_skipped();
  // Once per checkpoint in flight: on slow storage every interval can be skipped.
  if (!std::exchange(is_skip_logged_, true)) {
    log_warn("checkpoint skipped",
             {{"step", step}, {"reason", "the previous checkpoint is still being written"}});
  }
}

// The chief announces a snapshot when its own writer is idle; those of the others are about to be.
void Checkpointing::wait_for_writer() {
  // The watchdog has a timeout for what the writer does.
  const ScopedPhase phase(board_, control::TrainerPhase::kUnwatched);
  while (!writer_.wait_idle(kPollInterval)) board_.record_progress();
}

// A process that the group has lost must not train on: nothing that it computes is ever saved.
Status Checkpointing::check() const {
  if (!writer_.is_degraded()) return {};
  const auto stats = writer_.stats();
  if (!stats.degraded) return {};  // a commit has succeeded meanwhile
  if (stats.last_error_code == StatusCode::kPeerLost)
    return Status(StatusCode::kPeerLost, "no checkpoint can be saved: " + stats.last_error);
  if (config_.checkpoint.on_write_error != config::OnWriteError::kFail) return {};
  return Status(StatusCode::kIoError,
                "checkpoints fail and checkpoint.on_write_error is fail: " + stats.last_error);
}

bool Checkpointing::try_save(StepEngine& engine) {
  if (maybe_submitted_step_ == state_.step && !writer_.stats().degraded) {
    // This step is already saved or being saved. Once it is saved, pending requests are answered.
    if (writer_.stats().in_flight) return false;
    progress_.clear();
    for (const Done& done : std::exchange(requests_, {}))
      answer_at_step(done, state_.step, {{"already_saved", true}});
    return true;
  }
  // The host has waited for the device. If a rank was lost until then, the state is undefined, and the next
  // collective returns the error. Later losses do not change the state.
  if (!ranks_.check_lost().ok()) return false;
  writer::Snapshot* const snapshot = writer_.try_begin();
  if (snapshot == nullptr) return false;
  const nanoseconds began = clock_.monotonic();
  fill(*snapshot, engine);
  const nanoseconds stall = clock_.monotonic() - began;
  maybe_submitted_step_ = state_.step;
  is_skip_logged_ = false;
  triggers_.record_save(clock_.monotonic());
  manifest_.parent_checkpoint = checkpoint::CheckpointStore::checkpoint_name(state_.step);
  writer_.submit(
      [waiting = std::exchange(requests_, {})](Result<checkpoint::Manifest> result) {
        for (const Done& done : waiting) {
          if (result.ok())
            answer_at_step(done, result->step);
          else
            answer(done, result.status());
        }
      },
      [waiting = std::exchange(progress_, {})](uint64_t bytes, uint64_t total) {
        for (const OnProgress& on_progress : waiting) on_progress(bytes, total);
      });
  reporter_.add_stall(stall);
  reporter_.publish_snapshot(stall);
  return true;
}

void Checkpointing::fill(writer::Snapshot& snapshot, StepEngine& engine) {
  const ScopedPhase phase(board_, control::TrainerPhase::kCheckpoint);
  const PhaseScope snapping(instrumentation_.maybe_observer(), Phase::kSnapshot);
  checkpoint::Manifest& manifest = snapshot.manifest();
  manifest = manifest_;
  state_.quarantined = source_.quarantined();
  ranks_.add_quarantined(state_.quarantined);
  // Whether a save is taken depends on disk speed too. The trend changes only if a trigger uses it,
  // so that other runs do not depend on the disk.
  if (config_.checkpoint.save_on_loss_improvement) state_.loss_trend.record_save();
  snapshot.begin();
  engine.submit([this, &snapshot] { state_.copy_to(snapshot); });
  engine.synchronize();  // afterwards the copies are complete
  state_.describe(manifest);
  if (state_.stream) {
    add_stream(snapshot, *state_.stream);
    if (const auto history = source_.history_of(*state_.stream)) add_history(snapshot, *history);
  }
  manifest.epoch = source_.plan().epoch_of(state_.ticket);
  manifest.metrics_bytes = metrics_bytes_;
  manifest.sample_errors =
      source_.sample_errors_before(state_.ticket) + ranks_.sample_errors_of_others();
}

Status Checkpointing::save_last(StepEngine& engine, bool is_hurried) {
  if (state_.step == 0 || !has_snapshots()) return {};  // nothing to save
  wait_for_writer();
  // Answers pending `checkpoint` requests even if this step is already saved.
  if (!try_save(engine))
    return Status(StatusCode::kInternal, "the checkpoint writer rejected the final snapshot");
  wait_for_writer();
  const auto stats = writer_.stats();
  if (!stats.degraded) return {};
  const bool is_lost = stats.last_error_code == StatusCode::kPeerLost;
  return Status(is_lost ? StatusCode::kPeerLost : StatusCode::kIoError,
                std::string("the last state could not be saved") +
                    (is_hurried ? " while stopping" : "") + ": " + stats.last_error);
}

}  // namespace stoker::train
