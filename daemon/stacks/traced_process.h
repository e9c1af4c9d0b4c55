// TracedProcess: the threads of another process, stopped for the time that their stacks are read.
//
// Threads:  one.
// Blocking: the constructor up to `timeout`, because a thread in an uninterruptible system call does not
//           stop. The destructor lets all threads continue; a process that was stopped (SIGSTOP) stays
//           stopped. If this process ends first, the kernel does the same.
// Errors:   per thread; what can be read of a thread without stopping it is there in any case.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace stoker::stacks {

struct TracedThread {
  pid_t tid = 0;
  std::string name;
  std::string state;        // before it was stopped: "S (sleeping)"
  std::string kernel_wait;  // kernel function that it waits in; empty: none, or not readable
  std::string problem;      // why it is not stopped; empty: it is
  int pending_signal = 0;   // that it had received when it stopped
  bool is_stopped() const { return problem.empty(); }
};

class TracedProcess {
 public:
  TracedProcess(pid_t pid, std::chrono::milliseconds timeout);
  ~TracedProcess();
  TracedProcess(const TracedProcess&) = delete;
  TracedProcess& operator=(const TracedProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Empty: the process has ended.
  const std::vector<TracedThread>& threads() const { return threads_; }

 private:
  const pid_t pid_;
  std::vector<TracedThread> threads_;
};

// The child processes of `pid`, in order.
std::vector<pid_t> child_processes(pid_t pid);
// Name of a process or, with `tid`, of a thread; "?" if it has ended.
std::string process_name(pid_t pid);
// Why ptrace() of `pid` failed with `error`, and what permits it.
std::string explain_ptrace_error(pid_t pid, int error);

}  // namespace stoker::stacks
