// The checkpoint part of Trainer: when a checkpoint is taken, and how.
#include <set>
#include <utility>

#include "daemon/train/stream_tensors.h"
#include "daemon/train/trainer.h"
#include "shared/base/log.h"

namespace stoker::train {
namespace {

using std::chrono::nanoseconds;

double ms(nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

}  // namespace

SaveReason Trainer::save_due() {
  if (is_sharded_) return is_save_agreed_ ? SaveReason::kAnnounced : SaveReason::kNone;
  if (!may_save()) return SaveReason::kNone;
  return triggers_.due(state_.step, clock_.monotonic(), state_.loss_trend, writer_.is_degraded());
}

void Trainer::save_if_triggered(SaveReason reason) {
  if (reason == SaveReason::kAnnounced) wait_for_writer();
  if (reason == SaveReason::kNone || try_save() || reason != SaveReason::kSteps) return;
  record_skipped_save(state_.step);
}

void Trainer::record_skipped_save(uint64_t step) {
  writer_.increment_skipped();
  // Once per checkpoint in flight: on slow storage every interval can be skipped.
  if (!std::exchange(is_skip_logged_, true)) {
    log_warn("checkpoint skipped",
             {{"step", step}, {"reason", "the previous checkpoint is still being written"}});
  }
}

// Whether all ranks save `step`, which is about to be completed, or is the current one of a pause. Only
// on the chief of a sharded run.
bool Trainer::must_announce_save(uint64_t step) {
  if (step == config_.train.max_steps) return false;  // saved at the end
  const SaveReason reason =
      triggers_.due(step, clock_.monotonic(), state_.loss_trend, writer_.is_degraded());
  const bool is_due =
      (reason != SaveReason::kNone && step != state_.step) || !save_requests_.empty();
  if (!is_due) return false;
  if (writer_.wait_idle(std::chrono::milliseconds(0))) return true;
  // Once: a pause asks again and again.
  if (reason == SaveReason::kSteps && step != state_.step) record_skipped_save(step);
  return false;
}

// The chief announces a snapshot when its own writer is idle; those of the others are about to be.
void Trainer::wait_for_writer() {
  // The watchdog has a timeout for what the writer does.
  const ScopedPhase phase(channels_.board, control::TrainerPhase::kUnwatched);
  while (!writer_.wait_idle(kPollInterval)) channels_.board.record_progress();
}

// A process that the group has lost must not train on: nothing that it computes is ever saved.
Status Trainer::check_saving() const {
  if (!writer_.is_degraded()) return {};
  const auto stats = writer_.stats();
  if (!stats.degraded) return {};  // a commit has succeeded meanwhile
  if (stats.last_error_code == StatusCode::kPeerLost)
    return Status(StatusCode::kPeerLost, "no checkpoint can be saved: " + stats.last_error);
  if (config_.checkpoint.on_write_error != config::OnWriteError::kFail) return {};
  return Status(StatusCode::kIoError,
                "checkpoints fail and checkpoint.on_write_error is fail: " + stats.last_error);
}

bool Trainer::try_save() {
  if (maybe_submitted_step_ == state_.step && !writer_.stats().degraded) {
    // This step is already saved or being saved. Once it is saved, pending requests are answered.
    if (writer_.stats().in_flight) return false;
    save_progress_.clear();
    for (const Done& done : std::exchange(save_requests_, {}))
      answer_at_step(done, R"("already_saved":true)");
    return true;
  }
  // The host has waited for the device. If a rank was lost until then, the state is undefined, and the next
  // collective returns the error. Later losses do not change the state.
  if (maybe_group_ && !maybe_group_->group().check_lost().ok()) return false;
  writer::Snapshot* const snapshot = writer_.try_begin();
  if (snapshot == nullptr) return false;
  const nanoseconds began = clock_.monotonic();
  fill(*snapshot);
  const nanoseconds stall = clock_.monotonic() - began;
  interval_.stalled += stall;
  status_.checkpoint.stall_ms = ms(stall);
  maybe_submitted_step_ = state_.step;
  is_skip_logged_ = false;
  triggers_.record_save(clock_.monotonic());
  manifest_.parent_checkpoint = checkpoint::CheckpointStore::checkpoint_name(state_.step);
  writer_.submit(
      [waiting = std::exchange(save_requests_, {})](Result<checkpoint::Manifest> result) {
        for (const Done& done : waiting) {
          if (result.ok()) {
            answer(done, "{\"step\":" + std::to_string(result->step) + "}");
          } else {
            answer(done, result.status());
          }
        }
      },
      [waiting = std::exchange(save_progress_, {})](uint64_t bytes, uint64_t total) {
        for (const OnProgress& on_progress : waiting) on_progress(bytes, total);
      });
  publish(control::TrainerState::kSaving);
  return true;
}

void Trainer::fill(writer::Snapshot& snapshot) {
  const ScopedPhase phase(channels_.board, control::TrainerPhase::kCheckpoint);
  const PhaseScope snapping(instrumentation_.maybe_observer(), Phase::kSnapshot);
  checkpoint::Manifest& manifest = snapshot.manifest();
  manifest = manifest_;
  state_.quarantined = source_.quarantined();
  // Those of other ranks behind them, so that one process saves the same as before.
  std::set<uint64_t> known(state_.quarantined.begin(), state_.quarantined.end());
  for (const auto& others : quarantined_of_others_)
    for (const uint64_t sample : others)
      if (known.insert(sample).second) state_.quarantined.push_back(sample);
  // Whether a save is taken depends on disk speed too. The trend changes only if a trigger uses it,
  // so that other runs do not depend on the disk.
  if (config_.checkpoint.save_on_loss_improvement) state_.loss_trend.record_save();
  snapshot.begin();
  engine_->submit([this, &snapshot] { state_.copy_to(snapshot); });
  engine_->synchronize();  // afterwards the copies are complete
  state_.describe(manifest);
  if (state_.stream) {
    add_stream(snapshot, *state_.stream);
    if (const auto history = source_.history_of(*state_.stream)) add_history(snapshot, *history);
  }
  manifest.epoch = source_.plan().epoch_of(state_.ticket);
  manifest.metrics_bytes = metrics_bytes_;
  manifest.sample_errors = source_.sample_errors_before(state_.ticket) + sample_errors_of_others_;
}

Status Trainer::save_last(bool hurried) {
  if (state_.step == 0 || !has_snapshots()) return {};  // nothing to save
  wait_for_writer();
  // Answers pending `checkpoint` requests even if this step is already saved.
  if (!try_save())
    return Status(StatusCode::kInternal, "the checkpoint writer rejected the final snapshot");
  wait_for_writer();
  const auto stats = writer_.stats();
  if (!stats.degraded) return {};
  const bool is_lost = stats.last_error_code == StatusCode::kPeerLost;
  return Status(is_lost ? StatusCode::kPeerLost : StatusCode::kIoError,
                std::string("the last state could not be saved") +
                    (hurried ? " while stopping" : "") + ": " + stats.last_error);
}

}  // namespace stoker::train
