// Rendezvous: the ranks of a group meet in the store before their first collective.
//
// Threads:  one.
// Blocking: until all ranks have joined, the deadline, or a stop.
// Errors:   kPeerLost: ranks are missing at the deadline; the message names them. kMismatch: the
//           store belongs to another run or another number of ranks. kBusy: another process has
//           this rank. kCancelled.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "daemon/group/launch_environment.h"
#include "daemon/group/store.h"
#include "shared/base/deadline.h"
#include "shared/base/status.h"

namespace stoker::group {

// What a rank tells the others about itself.
struct StartRecord {
  std::string host;
  int64_t pid = 0;

  bool operator==(const StartRecord&) const = default;
};

// `run_id` is equal on all ranks of a run and different in other runs. `timeout` is for messages.
Status join_group(Store& store, const LaunchEnvironment& environment, const std::string& run_id,
                  const StartRecord& own, Deadline deadline, const std::stop_token& stop);

// "rank 3 (node-2, pid 4711)"; without what is not known.
std::string describe_rank(Store& store, const LaunchEnvironment& environment, int rank);

}  // namespace stoker::group
