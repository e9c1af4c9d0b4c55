#include "daemon/ctl/daemon_link.h"

#include <utility>

#include "daemon/ctl/run_place.h"
#include "shared/run/run_state.h"

namespace stoker::ctl {
namespace {

constexpr std::chrono::milliseconds kConnectTime{2000};

// Why nobody answers is best said by the run directory.
Status explained(const Status& status, const std::optional<run::RunLayout>& maybe_layout) {
  if (status.code() != Code::kUnreachable || !maybe_layout.has_value()) return status;
  const run::RunState state = run::look(*maybe_layout);
  const std::string run = "no stokerd answers for " + maybe_layout->root() + ": ";
  switch (state.kind) {
    case run::RunState::Kind::kEnded:
      return Status(Code::kUnreachable, run + "the run has ended, " + state_text(state));
    case run::RunState::Kind::kDead:
    case run::RunState::Kind::kAbsent:
      return Status(Code::kUnreachable, run + state_text(state));
    case run::RunState::Kind::kRunning:
      break;
  }
  return Status(Code::kUnreachable,
                run +
                    "one is running, but not listening there; it may be starting or ending, or "
                    "have control.socket set to another path: give that with --socket");
}

}  // namespace

Result<DaemonLink> DaemonLink::open(const CommandLine& command) {
  std::optional<run::RunLayout> maybe_layout;
  std::string path = command.socket;
  if (path.empty()) {
    auto layout = find_run(command.run_dir);
    if (!layout.ok()) return layout.status();
    // Where the socket is elsewhere (systemd's RuntimeDirectory), stokerd leaves a link to it here.
    path = layout->control_socket();
    maybe_layout = *std::move(layout);
  }
  auto client = control::Client::connect(path, kConnectTime);
  if (!client.ok()) return explained(client.status(), maybe_layout);
  return DaemonLink(*std::move(client), std::move(maybe_layout));
}

Result<std::string> DaemonLink::ask(std::string_view method, std::string_view params,
                                    std::chrono::milliseconds timeout) {
  auto answer = client_.call(method, params, timeout);
  if (!answer.ok()) return explained(answer.status(), maybe_layout_);
  return answer;
}

ExitCode exit_code_of_answer(const Status& status) {
  switch (status.code()) {
    case Code::kUnreachable:
    case Code::kTimedOut:
    case Code::kClosed:
    case Code::kCorrupt:  // what answers is no stokerd
      return ExitCode::kUnreachable;
    default:
      return exit_code_of(status);
  }
}

}  // namespace stoker::ctl
