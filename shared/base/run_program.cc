#include "shared/base/run_program.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "shared/base/descriptor_limit.h"
#include "shared/base/file.h"

namespace stoker {
namespace {

using SteadyClock = std::chrono::steady_clock;
using namespace std::chrono_literals;
constexpr auto kPollInterval = 100ms;
constexpr auto kTermTimeout = 2s;

class SpawnAttributes {
 public:
  explicit SpawnAttributes(int input) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, STDERR_FILENO, STDOUT_FILENO);
    // Libraries and the process that started this one can have opened descriptors without
    // close-on-exec.
    posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes_);
    // The child must not inherit blocked or ignored signals, such as SIGPIPE. Its own process group
    // lets terminate_group() kill its children too.
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
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

// A file in memory, so that the program's speed of reading does not matter.
Result<UniqueFd> make_input(std::string_view text) {
  UniqueFd file(::memfd_create("input", MFD_CLOEXEC));
  if (!file.valid()) return Status::from_errno(errno, "create a file in memory");
  STOKER_RETURN_IF_ERROR(
      default_file_system().write(file.get(), std::as_bytes(std::span(text)), "a file in memory"));
  if (::lseek(file.get(), 0, SEEK_SET) != 0)
    return Status::from_errno(errno, "rewind a file in memory");
  return file;
}

Status to_status(int raw) {
  if (WIFSIGNALED(raw))
    return Status(StatusCode::kInternal, "killed by signal " + std::to_string(WTERMSIG(raw)));
  if (WEXITSTATUS(raw) == 0) return {};
  return Status(StatusCode::kInternal, "exit code " + std::to_string(WEXITSTATUS(raw)));
}

}  // namespace

Status run_program(const std::vector<std::string>& command, std::string_view input,
                   std::chrono::milliseconds timeout, const std::stop_token& stop) {
  std::vector<char*> arguments;
  for (const std::string& part : command) arguments.push_back(const_cast<char*>(part.c_str()));
  arguments.push_back(nullptr);
  const auto stdin_file = make_input(input);
  if (!stdin_file.ok()) return stdin_file.status().with_context(command.front());
  const SpawnAttributes options(stdin_file->get());
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, arguments[0], &options.actions_, &options.attributes_,
                                   arguments.data(), environ);
  if (error != 0) return Status::from_errno(error, "start " + command.front());
  restore_descriptor_limit(pid);  // the program may use select()
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
      stop_reason = Status(StatusCode::kCancelled, "stopped before it ended");
    if (SteadyClock::now() >= deadline)
      stop_reason = Status(StatusCode::kTimedOut,
                           "terminated after " + std::to_string(timeout.count()) + " ms");
    if (stop_reason.ok()) continue;
    terminate_group(pid, pidfd.get());
    break;
  }
  int raw = 0;
  (void)::waitpid(pid, &raw, 0);
  const Status result = stop_reason.ok() ? to_status(raw) : stop_reason;
  return result.ok() ? result : result.with_context(command.front());
}

Result<std::string> find_installed_program(const std::string& name) {
  char self[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", self, sizeof(self));
  if (length <= 0) return Status::from_errno(errno, "readlink /proc/self/exe");
  std::string folder(self, static_cast<size_t>(length));
  folder.erase(folder.rfind('/'));
  for (const char* place : {"/", "/../libexec/stoker/", "/../libexec/"})
    if (::access((folder + place + name).c_str(), X_OK) == 0) return folder + place + name;
  return Status(StatusCode::kNotFound,
                name + " is neither in " + folder + " nor in " + folder + "/../libexec/stoker");
}

}  // namespace stoker
