// FeederProgram: stoker-feed: opens the data set and the ring that stokerd hands it, and reads
// until the ring closes.
//
// Errors: the process's exit code (shared/base/status.h); the reason is on standard error. When
//         its seccomp filter is not permitted that is a warning and ExitCode::kSandbox: stokerd
//         reports the error, once for all of its readers.
// Crash:  ends with its parent (PR_SET_PDEATHSIG). What it gives up before it reads the first
//         sample is in sandbox.h.
#pragma once

#include <cstdint>
#include <string>

#include "shared/base/status.h"

namespace stoker::feeder {

struct FeederArguments {
  std::string config_path;
  std::string index_dir;
  std::string fingerprint;
  uint64_t plan_ticket = 0;  // where the plan of this data begins
  uint64_t plan_epoch = 0;
  int ring_fd = -1;
  int quarantine_fd = -1;
  uint32_t worker = 0;   // row of the quarantine table
  uint32_t workers = 1;  // processes in all
  uint32_t producer = 0;
  uint32_t generation = 0;
  int threads = 1;
  int parent = 0;  // 0: not checked
};

// Dies with the parent; no core dump, no new privileges; deaf to the signals meant for stokerd. kCancelled: the parent is gone
// already.
Status initialize_process(int parent);
// Until the ring closes, or the end of data. Sets `sandbox_refused` when enter_sandbox() returns
// kPermission, and leaves it unchanged otherwise.
Status run_worker(const FeederArguments& arguments, bool& sandbox_refused);
// The whole program.
ExitCode worker_main(int argc, char** argv);

}  // namespace stoker::feeder
