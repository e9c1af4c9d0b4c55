// DaemonClient: sends requests to the stokerd of a run and explains why it does not answer. It first
// checks, except for root, that the daemon belongs to root, this user, or the owner of the run
// directory (with --socket: of the socket's directory) and, unless only --socket was given, that it
// trains that run.
//
// Threads:  one object per thread.
// Blocking: open() at most two seconds for the connection and ten for `hello`; request() at most
//           `timeout`.
// Errors:   kUnreachable: stokerd does not answer (the message says whether the run has ended),
//           or the stokerd of another run does (names both), or a process of another user;
//           kNotFound, kInvalidArgument: no run directory; otherwise the error that stokerd
//           returned.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "ctl/command_line.h"
#include "shared/base/status.h"
#include "shared/control/client.h"
#include "shared/control/command.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

class DaemonClient {
 public:
  static Result<DaemonClient> open(const CommandLine& command);
  // Of a run; waits at most `timeout`.
  static Result<DaemonClient> open(const run::RunLayout& layout, std::chrono::milliseconds timeout);

  // Returns the result, a JSON object on one line.
  Result<std::string> request(const control::Call& call, std::chrono::milliseconds timeout);
  // The same on a subscribed connection; see control::Client::call().
  Result<std::string> request(
      const control::Call& call, std::chrono::milliseconds timeout,
      const std::function<void(const control::Notification&)>& on_notification);
  // The next line of a subscription.
  Result<std::string> receive(std::chrono::milliseconds timeout) {
    return client_.receive(timeout);
  }
  // True if training is paused. Waits at most 10 seconds.
  bool is_paused();
  // nullopt if only --socket was given.
  const std::optional<run::RunLayout>& maybe_layout() const { return maybe_layout_; }

 private:
  DaemonClient(control::Client client, std::optional<run::RunLayout> maybe_layout)
      : client_(std::move(client)), maybe_layout_(std::move(maybe_layout)) {}

  control::Client client_;
  std::optional<run::RunLayout> maybe_layout_;
};

// kUnavailable (69) if there was no valid answer from stokerd, otherwise that of its error.
ExitCode exit_code_for_reply(const Status& status);

}  // namespace stoker::ctl
