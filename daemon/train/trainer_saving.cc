// When the trainer saves, and how.
#include <utility>

#include "daemon/train/trainer.h"
#include "shared/base/log.h"

namespace stoker::train {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
constexpr milliseconds kLook{100};  // as the trainer's

double ms(nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

}  // namespace

SaveReason Trainer::save_due() {
  return triggers_.due(state_.step, links_.clock.monotonic(), state_.loss_trend,
                       links_.writer.is_degraded());
}

void Trainer::save_by_rule(SaveReason reason) {
  if (reason == SaveReason::kNone || try_save() || reason != SaveReason::kSteps) return;
  links_.writer.count_skipped();
  // Once for each that is in flight: where saving is slow, every interval may skip.
  if (!std::exchange(skip_said_, true)) {
    log_warn("checkpoint skipped",
             {{"step", state_.step}, {"reason", "the previous checkpoint is still being written"}});
  }
}

Status Trainer::check_saving() const {
  if (config_.checkpoint.on_write_error != config::OnWriteError::kFail ||
      !links_.writer.is_degraded())
    return {};
  return Status(Code::kIoError, "checkpoints fail and checkpoint.on_write_error is fail: " +
                                    links_.writer.stats().last_error);
}

bool Trainer::try_save() {
  if (maybe_submitted_step_ == state_.step && !links_.writer.stats().degraded) {
    // This very state is saved, or being saved. Whoever asked gets the answer that it is.
    if (links_.writer.stats().in_flight) return false;
    for (const Request& request : std::exchange(save_requests_, {})) {
      answer(request, "{\"step\":" + std::to_string(state_.step) + ",\"saved\":\"before\"}");
    }
    return true;
  }
  writer::Snapshot* const snapshot = links_.writer.try_begin();
  if (snapshot == nullptr) return false;
  const nanoseconds began = links_.clock.monotonic();
  fill(*snapshot);
  const nanoseconds stall = links_.clock.monotonic() - began;
  interval_.stalled += stall;
  status_.checkpoint.stall_ms = ms(stall);
  maybe_submitted_step_ = state_.step;
  skip_said_ = false;
  triggers_.note_saved(links_.clock.monotonic());
  links_.manifest.parent = checkpoint::CheckpointStore::name_of(state_.step);
  links_.writer.submit(
      [waiting = std::exchange(save_requests_, {})](Result<checkpoint::Manifest> result) {
        for (const Request& request : waiting) {
          if (result.ok()) {
            answer(request, "{\"step\":" + std::to_string(result->step) + "}");
          } else {
            answer(request, result.status());
          }
        }
      });
  publish(control::TrainerState::kSaving);
  return true;
}

void Trainer::fill(writer::Snapshot& snapshot) {
  const PhaseScope snapping(watch_.maybe_observer(), Phase::kSnapshot);
  checkpoint::Manifest& manifest = snapshot.manifest();
  manifest = links_.manifest;
  state_.quarantined = links_.quarantined();
  // Which saves are taken depends on the disk, too: where nothing goes by it, it is no part of a run.
  if (config_.checkpoint.save_on_loss_improvement) state_.loss_trend.note_saved();
  state_.capture(snapshot);
  manifest.epoch = links_.plan.epoch_of(state_.ticket);
  manifest.metrics_bytes = links_.metrics_bytes;
  if (links_.bad_samples_before)
    manifest.maybe_bad_samples = links_.bad_samples_before(state_.ticket);
}

Status Trainer::save_last(bool hurried) {
  if (state_.step == 0) return {};  // nothing was learned
  while (!links_.writer.wait_idle(kLook)) links_.board.note_progress();
  if (maybe_submitted_step_ != state_.step || links_.writer.stats().degraded) {
    if (!try_save())
      return Status(Code::kInternal, "the checkpoint writer refuses the last snapshot");
    while (!links_.writer.wait_idle(kLook)) links_.board.note_progress();
  }
  const auto stats = links_.writer.stats();
  if (!stats.degraded) return {};
  return Status(Code::kIoError, std::string("the last state could not be saved") +
                                    (hurried ? " while stopping" : "") + ": " + stats.last_error);
}

}  // namespace stoker::train
