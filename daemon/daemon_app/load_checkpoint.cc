#include "daemon/daemon_app/load_checkpoint.h"

namespace stoker::daemon_app {

Result<bool> load_checkpoint(train::TrainingState& state,
                             const checkpoint::VerifiedCheckpoint& start,
                             const checkpoint::Manifest& now, RunChanges changes,
                             const Allowed& allowed) {
  const checkpoint::Manifest& saved = start.manifest();
  changes.add_manifest(saved, now);
  STOKER_RETURN_IF_ERROR(changes.check(allowed));
  const bool may_differ = allowed[Change::kModel];
  const auto restored = state.restore(start, may_differ);
  // The tensors tell of another model or optimizer, whatever the settings are.
  if (restored.status().code() == Code::kMismatch && !may_differ)
    changes.add(Change::kModel, restored.status().message());
  if (restored.ok()) changes.add_model(saved, now);
  STOKER_RETURN_IF_ERROR(changes.check(allowed));
  if (!restored.ok()) return restored.status();
  if (*restored == train::TrainingState::Restored::kPartly)
    changes.add(Change::kModel, "some tensors are not those of the checkpoint");
  if (changes.has(Change::kBatch)) state.ticket = ticket_at(state.ticket, saved.batch, now.batch);
  // They are numbers of samples of the other data.
  if (saved.data_digest != now.data_digest) state.quarantined.clear();
  changes.tell();
  return changes.any();
}

}  // namespace stoker::daemon_app
