#include "shared/feed/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "shared/base/exception_status.h"
#include "shared/base/log.h"
#include "shared/base/run_program.h"

extern char** environ;

namespace stoker::feed {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::string describe_process_state(const std::string& stat, const std::string& wait_channel) {
  // "PID (NAME) STATE …"; the name can contain any character.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return "";
  const std::string where =
      wait_channel.empty() || wait_channel == "0" ? "" : " in " + wait_channel;
  switch (stat[name_end + 2]) {
    case 'R':
      return "running";
    case 'S':
      return "asleep" + where;
    case 'D':
      return "in uninterruptible sleep (D)" + where;
    case 'T':
      return "stopped";
    case 't':
      return "stopped by a debugger";
    case 'Z':
      return "ended";
    default:
      return std::string("in state ") + stat[name_end + 2];
  }
}

std::string process_state(pid_t pid) {
  // In a hanging process most threads wait for the one that hangs, so the most informative state is
  // reported.
  const std::string telling = "ZSRtTD";
  size_t max = 0;
  std::string state;
  std::error_code error;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    const std::string stat = read_text(thread.path() / "stat");
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 2 >= stat.size()) continue;
    const size_t rank = telling.find(stat[name_end + 2]);
    if (rank == std::string::npos || (!state.empty() && rank <= max)) continue;
    max = rank;
    state = describe_process_state(stat, read_text(thread.path() / "wchan"));
  }
  return state;
}

std::chrono::nanoseconds cpu_time(pid_t pid) {
  clockid_t clock{};
  timespec spent{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &spent) != 0) return {};
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

namespace {

// The two posix_spawn structures, with cleanup.
struct SpawnRecords {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  SpawnRecords() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnRecords() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnRecords(const SpawnRecords&) = delete;
  SpawnRecords& operator=(const SpawnRecords&) = delete;
};

// Duplicates of the descriptors, with numbers that are not overwritten while the child's
// descriptors are set up.
Result<std::vector<UniqueFd>> lift(std::span<const int> fds) {
  std::vector<UniqueFd> lifted;
  for (const int fd : fds) {
    lifted.emplace_back(
        ::fcntl(fd, F_DUPFD_CLOEXEC, WorkerProcess::kFirstFd + static_cast<int>(fds.size())));
    if (!lifted.back().valid())
      return Status::from_errno(errno, "pass a descriptor to a worker process");
  }
  return lifted;
}

void prepare(SpawnRecords& records, const std::vector<UniqueFd>& fds) {
  // dup2 clears close-on-exec.
  for (size_t i = 0; i < fds.size(); ++i)
    ::posix_spawn_file_actions_adddup2(&records.actions, fds[i].get(),
                                       WorkerProcess::kFirstFd + static_cast<int>(i));
  ::posix_spawn_file_actions_addopen(&records.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&records.actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  // Libraries and the process that started this one can have opened descriptors without
  // close-on-exec.
  ::posix_spawn_file_actions_addclosefrom_np(
      &records.actions, WorkerProcess::kFirstFd + static_cast<int>(fds.size()));
  sigset_t blocked, defaults;
  ::sigemptyset(&blocked);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::sigaddset(&blocked, signal);
  ::sigfillset(&defaults);
  ::posix_spawnattr_setsigmask(&records.attributes, &blocked);
  ::posix_spawnattr_setsigdefault(&records.attributes, &defaults);
  ::posix_spawnattr_setflags(&records.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

// The environment of this process with OMP_NUM_THREADS=1: a library that starts a thread team per
// worker thread would take every core.
std::vector<char*> environment_of_child() {
  static char one_thread[] = "OMP_NUM_THREADS=1";
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!std::string_view(*entry).starts_with("OMP_NUM_THREADS=")) environment.push_back(*entry);
  environment.push_back(one_thread);
  environment.push_back(nullptr);
  return environment;
}

}  // namespace

std::string WorkerProcess::End::to_string() const {
  if (status_code() == StatusCode::kBusy)
    return "exit code " + std::to_string(code) +
           ", as for a timeout or a limit on processes and threads: " + describe_thread_limits();
  if (!by_signal) return "exit code " + std::to_string(code);
  return "signal " + std::to_string(code) + " (" + ::strsignal(code) + ")";
}

std::string WorkerProcess::End::hint() const {
  if (status_code() != StatusCode::kOutOfMemory)
    return "see their log lines; feed.num_processes: 0 helps to find the cause";
  if (!by_signal) return "raise feed.worker_memory_limit_mib, or reduce feed.num_workers";
  return "probably the kernel killed them because memory ran out (journalctl -k -g oom); reduce "
         "feed.num_workers or feed.prefetch_batches, or raise the memory limit (MemoryMax= of a "
         "service)";
}

StatusCode WorkerProcess::End::status_code() const {
  if (by_signal) return code == SIGKILL ? StatusCode::kOutOfMemory : StatusCode::kInternal;
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::kUsage:
    case ExitCode::kConfiguration:
      return StatusCode::kInvalidArgument;
    case ExitCode::kDataError:
      return StatusCode::kCorrupt;
    case ExitCode::kOutOfMemory:
      return StatusCode::kOutOfMemory;
    case ExitCode::kIoError:
      return StatusCode::kIoError;
    case ExitCode::kLocked:
      return StatusCode::kBusy;
    default:
      return StatusCode::kInternal;
  }
}

Result<WorkerProcess> WorkerProcess::spawn(const std::string& program,
                                           const std::vector<std::string>& arguments,
                                           std::span<const int> fds) {
  STOKER_ASSIGN_OR_RETURN(const std::vector<UniqueFd> lifted, lift(fds));
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const auto& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  SpawnRecords records;
  prepare(records, lifted);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, program.c_str(), &records.actions, &records.attributes,
                                  words.data(), environment_of_child().data());
  if (error == EAGAIN) return thread_limit_reached("start the worker process " + program);
  if (error != 0) return Status::from_errno(error, "start the worker process " + program);
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    const int cause = errno;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return Status::from_errno(cause,
                              "pidfd_open of a worker process (requires Linux 5.3 or later)");
  }
  return WorkerProcess(pid, std::move(pidfd));
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)) {}

WorkerProcess& WorkerProcess::operator=(WorkerProcess&& other) noexcept {
  if (this != &other) {
    kill_and_reap();
    pid_ = std::exchange(other.pid_, -1);
    pidfd_ = std::move(other.pidfd_);
  }
  return *this;
}

WorkerProcess::~WorkerProcess() { kill_and_reap(); }

std::optional<WorkerProcess::End> WorkerProcess::wait(int options) {
  if (pid_ < 0) return std::nullopt;
  siginfo_t info{};
  int result = 0;
  do result = ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | options);
  while (result != 0 && errno == EINTR);
  if (result == 0 && info.si_pid == 0) return std::nullopt;  // still running
  pid_ = -1;
  // An error means that there is nothing to wait for: SIGCHLD is ignored, and the kernel has reaped
  // the child.
  if (result != 0) return End{.by_signal = true, .code = SIGKILL};
  return End{.by_signal = info.si_code != CLD_EXITED, .code = info.si_status};
}

std::optional<WorkerProcess::End> WorkerProcess::try_reap() { return wait(WNOHANG); }

void WorkerProcess::kill() {
  if (pid_ >= 0) ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

bool WorkerProcess::kill_and_reap(std::chrono::milliseconds timeout) {
  if (pid_ < 0) return true;
  kill();
  pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  int result = 0;
  do result = ::poll(&ended, 1, static_cast<int>(timeout.count()));
  while (result < 0 && errno == EINTR);
  if (result != 0) return wait(0).has_value();
  log_error("worker process orphaned", {{"pid", pid_}, {"state", process_state(pid_)}});
  pid_ = -1;
  return false;
}

Result<std::string> find_feed_program() {
  auto found = find_installed_program("stoker-feed");
  if (found.status().code() != StatusCode::kNotFound) return found;
  return Status(StatusCode::kNotFound,
                found.status().message() + "; install it there, or set feed.num_processes: 0");
}

Status as_lost_access(const Status& error) {
  switch (error.code()) {
    case StatusCode::kNotFound:
    case StatusCode::kPermission:
    case StatusCode::kTimedOut:
      return Status(StatusCode::kIoError, error.message());
    default:
      return error;
  }
}

Status sandbox_refused() {
  return Status(StatusCode::kPermission,
                "feed.sandbox: the kernel or the service manager does not permit the seccomp "
                "filter of a worker process; add SystemCallFilter=seccomp to the systemd unit (in "
                "a container: allow seccomp in its profile), or set feed.sandbox: false");
}

}  // namespace stoker::feed
