// check_checkpoints: `stokerctl verify`: every byte against the checksums of its commit.
//
// Threads:  functions of their arguments and the file system.
// Blocking: reads whole checkpoints.
// Errors:   kNotFound: there is no such checkpoint, or none at all; kIoError, kPermission. Damage is
//           not an error but a finding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

struct CheckedCheckpoint {
  uint64_t step = 0;
  std::string path;
  uint64_t bytes = 0;
  size_t files = 0;
  std::string damage;  // names the file; empty: as it was committed
};

// Of `maybe_step`, of all of them, or of the newest.
Result<std::vector<CheckedCheckpoint>> check_checkpoints(const run::RunLayout& layout,
                                                         std::optional<uint64_t> maybe_step,
                                                         bool all);
// Where the checkpoint of a step lies; not verified. kNotFound names those that there are.
Result<std::string> checkpoint_path(const run::RunLayout& layout, uint64_t step);
bool is_damaged(const std::vector<CheckedCheckpoint>& checked);
// A line each.
std::string render_check(const std::vector<CheckedCheckpoint>& checked);
// One JSON object on one line, without newline.
std::string to_json(const std::vector<CheckedCheckpoint>& checked);

}  // namespace stoker::ctl
