// The checkpoint part of Trainer: when a checkpoint is taken, and how.
#include <utility>

#include "daemon/train/trainer.h"
#include "shared/base/log.h"

namespace stoker::train {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
constexpr milliseconds kSavePollInterval{100};  // same as kPollInterval of trainer.cc

double ms(nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

}  // namespace

SaveReason Trainer::save_due() {
  return triggers_.due(state_.step, dependencies_.clock.monotonic(), state_.loss_trend,
                       dependencies_.writer.is_degraded());
}

void Trainer::save_if_triggered(SaveReason reason) {
  if (reason == SaveReason::kNone || try_save() || reason != SaveReason::kSteps) return;
  dependencies_.writer.increment_skipped();
  // Once per checkpoint in flight: on slow storage every interval can be skipped.
  if (!std::exchange(is_skip_logged_, true)) {
    log_warn("checkpoint skipped",
             {{"step", state_.step}, {"reason", "the previous checkpoint is still being written"}});
  }
}

Status Trainer::check_saving() const {
  if (config_.checkpoint.on_write_error != config::OnWriteError::kFail ||
      !dependencies_.writer.is_degraded())
    return {};
  return Status(StatusCode::kIoError, "checkpoints fail and checkpoint.on_write_error is fail: " +
                                          dependencies_.writer.stats().last_error);
}

bool Trainer::try_save() {
  if (maybe_submitted_step_ == state_.step && !dependencies_.writer.stats().degraded) {
    // This step is already saved or being saved. Once it is saved, pending requests are answered.
    if (dependencies_.writer.stats().in_flight) return false;
    for (const Done& done : std::exchange(save_requests_, {}))
      answer_at_step(done, R"("saved":"before")");
    return true;
  }
  checkpoint::Snapshot* const snapshot = dependencies_.writer.try_begin();
  if (snapshot == nullptr) return false;
  const nanoseconds began = dependencies_.clock.monotonic();
  fill(*snapshot);
  const nanoseconds stall = dependencies_.clock.monotonic() - began;
  interval_.stalled += stall;
  status_.checkpoint.stall_ms = ms(stall);
  maybe_submitted_step_ = state_.step;
  is_skip_logged_ = false;
  triggers_.record_save(dependencies_.clock.monotonic());
  dependencies_.manifest.parent = checkpoint::CheckpointStore::checkpoint_name(state_.step);
  dependencies_.writer.submit(
      [waiting = std::exchange(save_requests_, {})](Result<checkpoint::Manifest> result) {
        for (const Done& done : waiting) {
          if (result.ok()) {
            answer(done, "{\"step\":" + std::to_string(result->step) + "}");
          } else {
            answer(done, result.status());
          }
        }
      });
  publish(control::TrainerState::kSaving);
  return true;
}

void Trainer::fill(checkpoint::Snapshot& snapshot) {
  const PhaseScope snapping(instrumentation_.maybe_observer(), Phase::kSnapshot);
  checkpoint::Manifest& manifest = snapshot.manifest();
  manifest = dependencies_.manifest;
  state_.quarantined = dependencies_.quarantined();
  // Whether a save is taken depends on disk speed too. The trend changes only if a trigger uses it,
  // so that other runs do not depend on the disk.
  if (config_.checkpoint.save_on_loss_improvement) state_.loss_trend.record_save();
  state_.capture(snapshot);
  manifest.epoch = dependencies_.plan.epoch_of(state_.ticket);
  manifest.metrics_bytes = dependencies_.metrics_bytes;
  if (dependencies_.sample_errors_before)
    manifest.sample_errors = dependencies_.sample_errors_before(state_.ticket);
}

Status Trainer::save_last(bool hurried) {
  if (state_.step == 0) return {};  // nothing to save
  while (!dependencies_.writer.wait_idle(kSavePollInterval)) dependencies_.board.record_progress();
  if (maybe_submitted_step_ != state_.step || dependencies_.writer.stats().degraded) {
    if (!try_save())
      return Status(StatusCode::kInternal, "the checkpoint writer refuses the last snapshot");
    while (!dependencies_.writer.wait_idle(kSavePollInterval))
      dependencies_.board.record_progress();
  }
  const auto stats = dependencies_.writer.stats();
  if (!stats.degraded) return {};
  return Status(StatusCode::kIoError, std::string("the last state could not be saved") +
                                          (hurried ? " while stopping" : "") + ": " +
                                          stats.last_error);
}

}  // namespace stoker::train
