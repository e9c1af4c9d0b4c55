#include "evaluator/backlog.h"

namespace stoker::evaluator {

std::vector<checkpoint::CheckpointEntry> due_checkpoints(
    const std::vector<checkpoint::CheckpointEntry>& entries, Policy policy,
    const std::function<bool(const checkpoint::CheckpointEntry&)>& settled) {
  std::vector<checkpoint::CheckpointEntry> due;
  if (policy == Policy::kAll) {
    for (const auto& entry : entries)
      if (!settled(entry)) due.push_back(entry);
    return due;
  }
  if (!entries.empty() && !settled(entries.back())) due.push_back(entries.back());
  return due;
}

}  // namespace stoker::evaluator
