// open_group: opens the process group of a launch environment. More than one rank: LibTorch's Gloo
// over TCP, for tensors in host memory.
//
// Threads:  one. The process must ignore SIGPIPE, as stokerd does.
// Blocking: until all ranks have joined, at most for `start_timeout`; a stop wakes it within 100 ms,
//           except while names are resolved and connections of Gloo are made.
// Errors:   kInvalidArgument: address or interface is wrong for this host. kBusy: the port, or the
//           rank, is taken. kMismatch: the store is of another run. kPeerLost: ranks are missing.
//           kCancelled.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "daemon/group/launch_environment.h"
#include "daemon/group/process_group.h"
#include "daemon/group/rendezvous.h"
#include "shared/base/status.h"

namespace stoker::group {

struct GroupOptions {
  std::string run_id;  // equal on all ranks of a run and different in other runs
  // Of the run, for its processes only: asked for where rank 0 serves the store.
  std::function<Result<std::string>()> secret;
  std::string interface = "auto";              // name or address; auto: that of the route to rank 0
  std::chrono::milliseconds timeout{120'000};  // of a collective
  std::chrono::milliseconds start_timeout{600'000};  // until all ranks have joined
  // Whether the process of a rank has ended, while ranks wait for each other at the start. May be empty.
  HasExited has_exited = {};
  Status ready;  // why this rank cannot take part, which the others are told; or ok
  // Called on the rank that serves the store, with the numeric address, before it waits for others.
  // Useful with store_port 0, which chooses a free port.
  std::function<void(const std::string& address, uint16_t port)> on_listening;
};

Result<std::unique_ptr<ProcessGroup>> open_group(const LaunchEnvironment& environment,
                                                 const GroupOptions& options,
                                                 const std::stop_token& stop);

}  // namespace stoker::group
