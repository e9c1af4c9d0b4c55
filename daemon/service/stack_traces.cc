#include "daemon/service/stack_traces.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "shared/base/deadline.h"
#include "shared/base/file.h"

extern char** environ;

namespace stoker::service {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;
constexpr size_t kMaxStacksBytes = size_t{16} << 20;
constexpr std::string_view kStacksNote = "note: ";

struct StacksProgram {
  pid_t pid = -1;
  UniqueFd output;
};

Result<StacksProgram> start_stacks_program(const std::string& program) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno(errno, "create a pipe");
  const UniqueFd write_end(ends[1]);
  StacksProgram child{.pid = -1, .output = UniqueFd(ends[0])};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string pid = std::to_string(::getpid()), name = program;
  char* argv[] = {name.data(), pid.data(), nullptr};
  const int error =
      ::posix_spawn(&child.pid, program.c_str(), &actions, &attributes, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return Status::from_errno(error, program);
  return child;
}

// What the process has printed until it ends or until `end`.
std::string read_until(int fd, SteadyClock::time_point end, bool& is_complete) {
  std::string text;
  is_complete = false;
  while (text.size() < kMaxStacksBytes) {
    const auto rest =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - SteadyClock::now());
    pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&readable, 1, static_cast<int>(std::max(rest, 0ms).count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    char bytes[16384];
    const ssize_t got = ::read(fd, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    is_complete = got == 0;
    if (got <= 0) break;
    text.append(bytes, static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

Result<StackTraces> collect_stack_traces(const std::string& program,
                                         std::chrono::milliseconds timeout) {
  const auto end = SteadyClock::now() + timeout;
  // With kernel.yama.ptrace_scope 1 a process may be traced by its ancestors only, and by the
  // processes that it names: here all that it has started.
  (void)::prctl(PR_SET_PTRACER, ::getpid(), 0, 0, 0);
  auto child = start_stacks_program(program);
  if (!child.ok()) return child.status();
  StackTraces traces;
  bool is_complete = false;
  traces.text = read_until(child->output.get(), end, is_complete);
  ::kill(child->pid, SIGKILL);  // does nothing if it has ended
  int status = 0;
  if (is_complete) (void)::waitpid(child->pid, &status, 0);
  std::istringstream lines(traces.text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(kStacksNote)) traces.missing.push_back(line.substr(kStacksNote.size()));
  if (!is_complete)
    traces.missing.push_back("stoker-stacks has not ended in " +
                             std::to_string(timeout.count() / 1000) + " s");
  return traces;
}

Status save_stack_traces(const std::string& path, std::string text,
                         std::chrono::milliseconds timeout) {
  return write_within(timeout, path, [path, text = std::move(text)] {
    return write_file_atomically(default_file_system(), path, text);
  });
}

}  // namespace stoker::service
