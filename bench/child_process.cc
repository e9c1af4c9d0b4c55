#include "bench/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace stoker::bench {

Result<ChildProcess> ChildProcess::fork(const std::function<Status()>& body) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Status::from_errno(errno, "fork");
  if (pid > 0) return ChildProcess(pid);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const Status status = body();
  if (!status.ok()) std::fprintf(stderr, "child process: %s\n", status.to_string().c_str());
  ::_exit(status.ok() ? 0 : 1);
}

Result<ChildProcess> ChildProcess::exec(const std::vector<std::string>& argv,
                                        const std::string& log) {
  return fork([&] {
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out < 0) return Status::from_errno(errno, "open " + log);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    std::vector<char*> arguments;
    for (const std::string& word : argv) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execv(arguments[0], arguments.data());
    return Status::from_errno(errno, "start " + argv[0]);
  });
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool ChildProcess::is_running() const {
  siginfo_t ended{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         ended.si_pid == 0;
}

void ChildProcess::signal(int number) const { ::kill(pid_, number); }

Status ChildProcess::join() {
  int ended = 0;
  if (::waitpid(std::exchange(pid_, -1), &ended, 0) < 0)
    return Status::from_errno(errno, "waitpid");
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return {};
  return Status(StatusCode::kInternal, "the child process did not end well");
}

}  // namespace stoker::bench
