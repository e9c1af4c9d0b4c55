// LiveStatus: the status of the stokerd of a run, over its control socket, for a page that shows runs of
// a directory. read_summaries(): of many runs, for a list.
//
// Threads:  one at a time; read_summaries() any, it asks with threads of its own.
// Blocking: read() up to kTimeout for the connection and for each reply, while stokerd hangs; then it
//           does not try again for kPause. read_summaries() reads the runs' files, then at most `timeout`.
// Errors:   none: without an answer there is no status.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "ctl/daemon_client.h"
#include "shared/base/clock.h"
#include "shared/run/run_layout.h"
#include "shared/view/run_view.h"

namespace stoker::ctl {

class LiveStatus {
 public:
  static constexpr std::chrono::milliseconds kTimeout{500};
  static constexpr std::chrono::seconds kPause{5};

  // `clock` must outlive this object.
  LiveStatus(Clock& clock, run::RunLayout layout) : clock_(clock), layout_(std::move(layout)) {}

  // One JSON object on one line, as the reply to `status`; nullopt: stokerd does not run, or not as a user
  // whom DaemonClient trusts.
  std::optional<std::string> read();

 private:
  Result<std::string> request();

  Clock& clock_;
  const run::RunLayout layout_;
  std::optional<DaemonClient> maybe_client_;
  std::optional<std::chrono::nanoseconds> maybe_failed_at_;
};

inline constexpr std::chrono::milliseconds kListTimeout{300};

// In the same order. The stokerds of those that run are asked at the same time; one that does not answer within
// `timeout` is reported as such. A stokerd that this user may not ask counts as running.
std::vector<view::RunSummary> read_summaries(const std::vector<view::FoundRun>& runs,
                                             std::chrono::milliseconds timeout = kListTimeout);

}  // namespace stoker::ctl
