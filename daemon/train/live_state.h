// LiveState: what changes while a run goes on and is no tensor: `live` of a checkpoint's manifest.
//
// Threads: values.
// Errors:  parse_live_state(): kCorrupt, naming what is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/train/loss_trend.h"
#include "shared/base/status.h"

namespace stoker::train {

struct LiveState {
  double lr_scale = 1.0;  // of `set lr`: the schedule's learning rate times this
  uint64_t skipped_steps =
      0;  // of the steps so far: those that changed nothing, see NonfiniteGuard
  uint64_t consecutive_nonfinite = 0;  // of them, up to the last step that NonfiniteGuard looked at
  uint64_t rollbacks = 0;              // of the run so far
  LossTrend loss_trend;
  // Samples that the readers must not touch again: their stand-ins are part of what was trained on.
  std::vector<uint64_t> quarantined;

  bool operator==(const LiveState&) const = default;
};

std::string to_json(const LiveState& live);
// What an earlier release did not write is as in a run that begins.
Result<LiveState> parse_live_state(const std::string& text);

}  // namespace stoker::train
