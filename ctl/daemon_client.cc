#include "ctl/daemon_client.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "ctl/run_locator.h"
#include "shared/base/utf8.h"
#include "shared/control/grammar.h"
#include "shared/control/hello_reply.h"
#include "shared/run/run_state.h"

namespace stoker::ctl {
namespace {

constexpr std::chrono::milliseconds kConnectTimeout{2000};
constexpr std::chrono::milliseconds kHelloTimeout{10'000};
constexpr std::chrono::milliseconds kIsPausedTimeout{10'000};

// `loss`: what has happened to the chief. `ranks`: that still run without it.
std::string explain_lost_chief(const std::string& loss, const std::vector<RunningRank>& ranks) {
  const auto has_task = [](const RunningRank& each) { return !each.task.empty(); };
  const bool is_cluster = std::ranges::any_of(ranks, has_task);
  std::vector<std::string> names;
  for (const RunningRank& each : ranks)
    names.push_back(has_task(each) ? each.task
                                   : (is_cluster ? "rank " : "") + std::to_string(each.rank));
  if (is_cluster)
    return "the chief (worker 0) " + loss + "; still running: " + join(names, ", ") +
           "; nothing is saved until the chief is started again";
  return "the chief (rank 0) " + loss + "; still running: rank " + join(names, ", ") +
         "; these exit when they notice it, and then all ranks are to be started again";
}

// The run directory explains best why stokerd does not answer.
Status describe_error(const Status& status, const std::optional<run::RunLayout>& maybe_layout) {
  if (status.code() != StatusCode::kUnreachable || !maybe_layout.has_value()) return status;
  const run::RunState state = run::read_run_state(*maybe_layout);
  const std::vector<RunningRank> ranks = find_running_ranks(*maybe_layout);
  const std::string run = "stokerd is not reachable for " + maybe_layout->root() + ": ";
  switch (state.phase) {
    case run::RunState::Phase::kEnded:
      if (state.end->outcome == run::RunOutcome::kFailed && !ranks.empty())
        return Status(StatusCode::kUnreachable,
                      run + explain_lost_chief(format_run_state(state), ranks));
      return Status(StatusCode::kUnreachable,
                    run + "the run has ended, " + format_run_state(state));
    case run::RunState::Phase::kCrashed:
      if (!ranks.empty())
        return Status(StatusCode::kUnreachable,
                      run + explain_lost_chief("was killed or its machine crashed", ranks));
      return Status(StatusCode::kUnreachable, run + format_run_state(state));
    case run::RunState::Phase::kPreempted:
    case run::RunState::Phase::kAbsent:
      return Status(StatusCode::kUnreachable, run + format_run_state(state));
    case run::RunState::Phase::kRunning:
      break;
  }
  return Status(
      StatusCode::kUnreachable,
      run +
          "it is running, but not listening on this socket; it may be starting or shutting "
          "down, or control.socket is set to another path (use --socket)");
}

// Another user who can write to the directory of the socket can listen in place of stokerd. The
// owner of `directory` can replace everything in it, so that user is trusted. Root manages the runs
// of all users.
Status check_user(const control::Client& client, const std::string& directory) {
  const uid_t uid = client.peer_uid();
  if (uid == 0 || ::geteuid() == 0 || uid == ::geteuid()) return {};
  struct stat info {};
  if (::stat(directory.c_str(), &info) == 0 && uid == info.st_uid) return {};
  const std::string user = "uid " + std::to_string(uid);
  return Status(StatusCode::kUnreachable,
                printable(client.path()) + ": the listening process belongs to " + user +
                    ", not to root, this user or the owner of " + printable(directory) +
                    "; no command was sent (if it is the run's stokerd, run stokerctl as " + user +
                    " or root, or let " + user + " own that directory)");
}

// Another run can have the socket: both have the same control.socket, or the run crashed and its
// symlink points to a path that another one uses now.
Status check_run(control::Client& client, const run::RunLayout& layout,
                 std::chrono::milliseconds timeout = kHelloTimeout) {
  STOKER_ASSIGN_OR_RETURN(const auto expected, control::identify_run(layout.root()));
  const auto reply = client.call("hello", control::to_params(control::Hello{}), timeout);
  if (!reply.ok()) return describe_error(reply.status(), layout);
  const auto hello = control::parse_hello_reply(*reply);
  if (hello.status().code() == StatusCode::kMismatch)
    return Status(StatusCode::kUnreachable,
                  printable(client.path()) + ": " + printable(hello.status().message()));
  if (!hello.ok())
    return Status(hello.status().code(), printable(client.path()) + ": " +
                                             printable(hello.status().message()) +
                                             " (an older stokerd? use --socket)");
  const control::RunIdentity& actual = hello->run;
  if (actual.run_dir_id == expected.run_dir_id) return {};
  return Status(StatusCode::kUnreachable,
                printable(client.path()) + ": belongs to the stokerd of another run, " +
                    printable(actual.run_dir) + " (pid " + std::to_string(actual.pid) +
                    "), not of " + printable(expected.run_dir) +
                    "; no command was sent (to control that run: --run-dir, or --socket)");
}

}  // namespace

Result<DaemonClient> DaemonClient::open(const CommandLine& command) {
  std::optional<run::RunLayout> maybe_layout;
  std::string path = command.socket;
  if (path.empty()) {
    auto layout = locate_run(command.run_dir);
    if (!layout.ok()) return layout.status();
    // If the socket is elsewhere (systemd's RuntimeDirectory), stokerd creates a symlink to it
    // here.
    path = layout->control_socket();
    maybe_layout = *std::move(layout);
  }
  auto client = control::Client::connect(path, kConnectTimeout);
  if (!client.ok()) return describe_error(client.status(), maybe_layout);
  std::string directory = maybe_layout.has_value()
                              ? maybe_layout->root()
                              : std::filesystem::path(path).parent_path().string();
  if (directory.empty()) directory = ".";
  STOKER_RETURN_IF_ERROR(check_user(*client, directory));
  if (maybe_layout.has_value()) STOKER_RETURN_IF_ERROR(check_run(*client, *maybe_layout));
  return DaemonClient(*std::move(client), std::move(maybe_layout));
}

Result<DaemonClient> DaemonClient::open(const run::RunLayout& layout,
                                        std::chrono::milliseconds timeout) {
  const auto begin = std::chrono::steady_clock::now();
  auto client = control::Client::connect(layout.control_socket(), timeout);
  if (!client.ok()) return client.status();
  STOKER_RETURN_IF_ERROR(check_user(*client, layout.root()));
  const auto spent =
      std::chrono::floor<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  STOKER_RETURN_IF_ERROR(
      check_run(*client, layout, std::max(std::chrono::milliseconds(1), timeout - spent)));
  return DaemonClient(*std::move(client), layout);
}

Result<std::string> DaemonClient::request(const control::Call& call,
                                          std::chrono::milliseconds timeout) {
  auto reply = client_.call(control::method_info(call).name, control::to_params(call), timeout);
  if (!reply.ok()) return describe_error(reply.status(), maybe_layout_);
  return reply;
}

Result<std::string> DaemonClient::request(
    const control::Call& call, std::chrono::milliseconds timeout,
    const std::function<void(const control::Notification&)>& on_notification) {
  auto reply = client_.call(control::method_info(call).name, control::to_params(call), timeout,
                            on_notification);
  if (!reply.ok()) return describe_error(reply.status(), maybe_layout_);
  return reply;
}

bool DaemonClient::is_paused() {
  const auto reply = request(control::GetStatus{}, kIsPausedTimeout);
  return reply.ok() && reply->find("\"state\":\"paused\"") != std::string::npos;
}

ExitCode exit_code_for_reply(const Status& status) {
  const StatusCode code = status.code();
  const bool is_unreachable = code == StatusCode::kUnreachable || code == StatusCode::kTimedOut ||
                              code == StatusCode::kClosed ||
                              code == StatusCode::kCorrupt;  // the peer is not stokerd
  return is_unreachable ? ExitCode::kUnavailable : exit_code_for(status);
}

}  // namespace stoker::ctl
