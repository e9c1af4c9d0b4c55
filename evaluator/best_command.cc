#include "evaluator/best_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "shared/base/file.h"

namespace stoker::evaluator {
namespace {

using SteadyClock = std::chrono::steady_clock;
using namespace std::chrono_literals;
constexpr auto kPollInterval = 100ms;
constexpr auto kTermTimeout = 2s;

class SpawnAttributes {
 public:
  SpawnAttributes() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_init(&attributes_);
    // The child must not inherit blocked signals or the ignored SIGPIPE. Its own process group lets
    // end_group() kill its children too.
    sigset_t none, ignored;
    sigemptyset(&none);
    sigemptyset(&ignored);
    sigaddset(&ignored, SIGPIPE);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &ignored);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnAttributes() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;

  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

// True if the process has exited within `time` and can be reaped.
bool exits_within(int pidfd, std::chrono::milliseconds time) {
  pollfd poll_interval{.fd = pidfd, .events = POLLIN, .revents = 0};
  return ::poll(&poll_interval, 1, static_cast<int>(time.count())) > 0;
}

void terminate_group(pid_t pid, int pidfd) {
  ::kill(-pid, SIGTERM);
  (void)exits_within(pidfd, kTermTimeout);
  ::kill(-pid, SIGKILL);
  (void)exits_within(pidfd, kTermTimeout);
}

Status to_status(int raw) {
  if (WIFSIGNALED(raw))
    return Status(StatusCode::kInternal, "killed by signal " + std::to_string(WTERMSIG(raw)));
  if (WEXITSTATUS(raw) == 0) return {};
  return Status(StatusCode::kInternal, "exit code " + std::to_string(WEXITSTATUS(raw)));
}

}  // namespace

Status run_best_command(const std::vector<std::string>& command, const std::string& checkpoint_path,
                        std::chrono::milliseconds timeout, std::stop_token stop) {
  std::vector<char*> arguments;
  for (const std::string& part : command) arguments.push_back(const_cast<char*>(part.c_str()));
  arguments.push_back(const_cast<char*>(checkpoint_path.c_str()));
  arguments.push_back(nullptr);
  const SpawnAttributes options;
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, arguments[0], &options.actions_, &options.attributes_,
                                   arguments.data(), environ);
  if (error != 0) return Status::from_errno(error, "start " + command.front());
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {  // its exit could not be detected
    const int cause = errno;
    ::kill(-pid, SIGKILL);
    (void)::waitpid(pid, nullptr, 0);
    return Status::from_errno(cause, "watch " + command.front());
  }
  const auto deadline = SteadyClock::now() + timeout;
  Status stop_reason;
  while (!exits_within(pidfd.get(), kPollInterval)) {
    if (stop.stop_requested())
      stop_reason = Status(StatusCode::kCancelled, "the evaluator was stopped");
    if (SteadyClock::now() >= deadline)
      stop_reason = Status(StatusCode::kTimedOut, "exceeded eval.timeout_seconds");
    if (stop_reason.ok()) continue;
    terminate_group(pid, pidfd.get());
    break;
  }
  int raw = 0;
  (void)::waitpid(pid, &raw, 0);
  const Status result = stop_reason.ok() ? to_status(raw) : stop_reason;
  return result.ok() ? result : result.with_context(command.front());
}

}  // namespace stoker::evaluator
