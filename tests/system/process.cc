#include "tests/system/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace stoker::test {

Process::Process(const std::vector<std::string>& argv, const std::string& log) : log_(log) {
  std::vector<char*> arguments;
  for (const auto& word : argv) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  const int error =
      ::posix_spawnp(&pid_, argv.front().c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + argv.front());
  pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      exit_(other.exit_),
      log_(std::move(other.log_)) {}

Process::~Process() {
  if (pid_ > 0 && !exit_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (pidfd_ >= 0) ::close(pidfd_);
}

void Process::signal(int number) const {
  if (!exit_) ::kill(pid_, number);
}

bool Process::kill() {
  signal(SIGKILL);
  const auto exit = wait(std::chrono::seconds(60));
  return exit && exit->signal == SIGKILL;
}

std::optional<Exit> Process::wait(std::chrono::milliseconds timeout) {
  if (exit_) return exit_;
  pollfd ended{pidfd_, POLLIN, 0};
  if (::poll(&ended, 1, static_cast<int>(scaled(timeout).count())) <= 0) return std::nullopt;
  int status = 0;
  if (::waitpid(pid_, &status, 0) != pid_) return std::nullopt;
  exit_ = WIFSIGNALED(status) ? Exit{0, WTERMSIG(status)} : Exit{WEXITSTATUS(status), 0};
  return exit_;
}

void sleep_between_polls() { ::poll(nullptr, 0, 5); }

}  // namespace stoker::test
