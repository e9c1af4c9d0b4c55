// Backlog: which of the checkpoints that are there to evaluate next, as a pure function of what is
// known.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shared/checkpoint/store.h"

namespace stoker::evaluator {

enum class Policy { kLatest, kAll };

// `entries` oldest first; `settled` says whether a step needs nothing more. latest: the newest that
// is not settled, and nothing that is older than something evaluated (those are skipped for good).
// all: oldest first.
std::vector<checkpoint::CheckpointEntry> due_checkpoints(
    const std::vector<checkpoint::CheckpointEntry>& entries, Policy policy,
    const std::function<bool(const checkpoint::CheckpointEntry&)>& settled);

}  // namespace stoker::evaluator
