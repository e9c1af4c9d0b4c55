// LiveState: the state of a run that changes during training and is not a tensor. It is the field
// `live` of a checkpoint's manifest.
//
// Threads: values.
// Errors:  parse_live_state(): kCorrupt; the message states the invalid field or the parser's
//          error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/train/loss_trend.h"
#include "daemon/train/plateau.h"
#include "shared/base/status.h"
#include "shared/config/live_settings.h"
#include "shared/run/batch_sizes.h"

namespace stoker::train {

struct LiveState {
  config::LiveSettings settings;
  double lr_scale = 1.0;       // lowered by rollbacks; multiplies the scheduled learning rate
  uint64_t skipped_steps = 0;  // steps without an update, see NonfiniteGuard
  // Consecutive skipped steps up to the last one that NonfiniteGuard evaluated.
  uint64_t consecutive_nonfinite = 0;
  uint64_t rollbacks = 0;  // over the whole run
  LossTrend loss_trend;
  Plateau plateau;  // of the training loss; with scheduler reduce_on_plateau
  // Samples that the workers must not read again. Training already used their replacement samples.
  std::vector<uint64_t> quarantined;
  run::BatchSizes batch_sizes;  // of all steps, if --allow-batch-change has changed it

  bool operator==(const LiveState&) const = default;
};

std::string to_json(const LiveState& live);
// Missing fields take their defaults.
Result<LiveState> parse_live_state(const std::string& text);

}  // namespace stoker::train
