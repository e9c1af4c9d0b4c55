// DaemonClient: questions to the stokerd of a run, and what to say when it does not answer.
//
// Threads:  one object per thread.
// Blocking: open() two seconds at most, ask() at most `timeout`.
// Errors:   kUnreachable: nobody answers; says whether the run has ended. kNotFound,
//           kInvalidArgument: no run directory. Else what stokerd answered.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "ctl/command_line.h"
#include "shared/base/status.h"
#include "shared/control/client.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

class DaemonClient {
 public:
  static Result<DaemonClient> open(const CommandLine& command);

  // The result, a JSON object on one line. `params`: a JSON object, or empty.
  Result<std::string> ask(std::string_view method, std::string_view params,
                          std::chrono::milliseconds timeout);
  // Whether it says that training is paused; waits 10 seconds at most.
  bool is_paused();
  // Nothing where only --socket was given.
  const std::optional<run::RunLayout>& maybe_layout() const { return maybe_layout_; }

 private:
  DaemonClient(control::Client client, std::optional<run::RunLayout> maybe_layout)
      : client_(std::move(client)), maybe_layout_(std::move(maybe_layout)) {}

  control::Client client_;
  std::optional<run::RunLayout> maybe_layout_;
};

// 69 whenever the daemon could not be heard, 64 where it says that the request is wrong.
ExitCode exit_code_for_reply(const Status& status);

}  // namespace stoker::ctl
