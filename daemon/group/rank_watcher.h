// RankWatcher: finds that another rank is lost while the thread that trains does not, because it waits for
// its GPU, which waits for that rank.
//
// Knows of ranks that have reported a failure, and of ranks whose connection is closed, and reports what it has seen
// twice. A store that does not respond is no loss; then it knows of connections only. All else is found by the time limits
// of the others.
//
// Threads:  has its own, which calls `find_closed` and `on_lost`; the methods from any.
// Blocking: stop() and the destructor for a request to the store, a few seconds at most.
// Owner:    the store must outlive this object, and is used by no other thread: its requests can be slow.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "daemon/group/store.h"
#include "shared/base/coordinator.h"
#include "shared/base/status.h"

namespace stoker::group {

class RankWatcher {
 public:
  struct LostRank {
    int rank = 0;
    std::string reason;  // how it was found

    bool operator==(const LostRank&) const = default;
  };

  // A rank whose connection is closed.
  using FindClosed = std::function<std::optional<LostRank>()>;

  // `rank`: the own one. `on_lost`: called once, after lost() has the rank, which the others are told, too.
  RankWatcher(Store& keys, int rank, FindClosed find_closed, std::chrono::milliseconds interval,
              std::function<void()> on_lost);

  // Whether this rank depends on the others; not at first. Otherwise none is lost: a rank may exit when the collectives of
  // all are complete.
  void expect_ranks(bool is_expected);
  // The first that was found.
  std::optional<LostRank> lost() const;
  // Before ranks exit because the run has ended.
  void stop();

 private:
  Status watch(const std::stop_token& stop);
  std::optional<LostRank> find_announced();
  bool record(const LostRank& found);

  // Constant after construction.
  Store& keys_;
  const int rank_;
  const FindClosed find_closed_;
  const std::chrono::milliseconds interval_;
  const std::function<void()> on_lost_;

  mutable std::mutex mutex_;
  bool is_expected_ = false;      // guarded by mutex_
  std::optional<LostRank> lost_;  // guarded by mutex_

  Coordinator thread_;  // last: uses the members above
};

}  // namespace stoker::group
