// verify_checkpoints: `stokerctl verify`: every byte against the checksums of its commit.
//
// Threads:  functions of their arguments and the file system.
// Blocking: reads whole checkpoints.
// Errors:   kNotFound: there is no such checkpoint, or none at all; kIoError, kPermission. Damage is
//           not an error but a finding.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

struct VerificationResult {
  uint64_t step = 0;
  std::string path;
  uint64_t bytes = 0;
  size_t files = 0;
  std::string error;  // names the file; empty: as it was committed
};

// Which, and who is told how it goes.
struct VerifyOptions {
  std::string which = "latest";  // as select_checkpoint() takes it
  bool all = false;              // all there are, instead
  std::function<void(const checkpoint::CheckpointEntry&)> on_begin = {};
  checkpoint::OnBytes on_bytes = {};
  std::function<void(const VerificationResult&)> on_checked = {};
};
Result<std::vector<VerificationResult>> verify_checkpoints(const run::RunLayout& layout,
                                                           const VerifyOptions& request);
bool any_corrupt(const std::vector<VerificationResult>& results);
// A line.
std::string render_verification(const VerificationResult& results);
// One JSON object on one line, without newline.
std::string to_json(const std::vector<VerificationResult>& results);

}  // namespace stoker::ctl
