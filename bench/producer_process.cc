#include "bench/producer_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace stoker::bench {

Result<ProducerProcess> ProducerProcess::fork(const std::function<Status()>& body) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Status::from_errno(errno, "fork");
  if (pid > 0) return ProducerProcess(pid);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const Status status = body();
  if (!status.ok()) std::fprintf(stderr, "producer process: %s\n", status.to_string().c_str());
  ::_exit(status.ok() ? 0 : 1);
}

ProducerProcess::~ProducerProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Status ProducerProcess::join() {
  int ended = 0;
  if (::waitpid(std::exchange(pid_, -1), &ended, 0) < 0)
    return Status::from_errno(errno, "waitpid");
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return {};
  return Status(Code::kInternal, "the producer process did not end well");
}

}  // namespace stoker::bench
