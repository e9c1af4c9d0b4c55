// RankWatcher: finds that another rank is lost while the thread that trains does not, because it waits for
// its GPU, which waits for that rank.
//
// Knows of ranks that have reported a failure, of ranks on this host that have exited, and of rank 0 if it serves the
// store. A host that is lost as a whole is found by the time limits of the others only.
//
// Threads:  has its own; lost() from any.
// Blocking: stop() and the destructor for a request to the store, a few seconds at most.
// Owner:    the store must outlive this object.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "daemon/group/launch_environment.h"
#include "daemon/group/rendezvous.h"
#include "daemon/group/store.h"
#include "shared/base/coordinator.h"
#include "shared/base/status.h"

namespace stoker::group {

class RankWatcher {
 public:
  struct LostRank {
    int rank = 0;
    std::string reason;  // how it was found
  };

  // `on_lost`: called by the own thread, once, after lost() has the rank.
  RankWatcher(Store& keys, const LaunchEnvironment& environment, HasExited has_exited,
              std::chrono::milliseconds interval, std::function<void()> on_lost);

  // The first that was found.
  std::optional<LostRank> lost() const;
  // Before ranks exit because the run has ended.
  void stop();

 private:
  Status watch(const std::stop_token& stop);
  std::optional<LostRank> find_lost();

  // Constant after construction.
  Store& keys_;
  const LaunchEnvironment environment_;
  const HasExited has_exited_;
  const std::chrono::milliseconds interval_;
  const std::function<void()> on_lost_;

  mutable std::mutex mutex_;
  std::optional<LostRank> lost_;  // guarded by mutex_

  Coordinator thread_;  // last: uses the members above
};

}  // namespace stoker::group
