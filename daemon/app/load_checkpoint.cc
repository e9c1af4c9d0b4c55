#include "daemon/app/load_checkpoint.h"

namespace stoker::app {

Result<bool> load_checkpoint(train::TrainingState& state,
                             const checkpoint::VerifiedCheckpoint& start,
                             const checkpoint::Manifest& now, ResumeCompatibility changes,
                             const AllowedChanges& allowed) {
  const checkpoint::Manifest& saved = start.manifest();
  changes.add_manifest(saved, now);
  STOKER_RETURN_IF_ERROR(changes.check(allowed));
  const bool may_differ = allowed[ChangeKind::kModel];
  const auto restored = state.restore(start, may_differ);
  // Different tensors are a different model or optimizer, even if the configuration is the same.
  if (restored.status().code() == StatusCode::kMismatch && !may_differ)
    changes.add(ChangeKind::kModel, restored.status().message());
  if (restored.ok()) changes.add_model(saved, now);
  STOKER_RETURN_IF_ERROR(changes.check(allowed));
  if (!restored.ok()) return restored.status();
  if (*restored == train::TrainingState::Restored::kPartially)
    changes.add(ChangeKind::kModel, "some tensors differ from the checkpoint");
  if (changes.has(ChangeKind::kBatch))
    state.ticket = ticket_at(state.ticket, saved.micro_batch_size, now.micro_batch_size);
  // The quarantine refers to sample numbers of the previous data.
  if (saved.data_digest != now.data_digest) state.quarantined.clear();
  changes.log_waived_guarantees();
  return changes.any();
}

}  // namespace stoker::app
