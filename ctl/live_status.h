// LiveStatus: the status of the stokerd of a run, over its control socket, for a page that shows runs of
// a directory.
//
// Threads:  one at a time.
// Blocking: read() up to kTimeout for the connection and for each reply, while stokerd hangs; then it
//           does not try again for kPause.
// Errors:   none: without an answer there is no status.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "ctl/daemon_client.h"
#include "shared/base/clock.h"
#include "shared/run/run_layout.h"

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

}  // namespace stoker::ctl
