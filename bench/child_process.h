// ChildProcess: a forked child that runs one function or program; ended with its parent, or when
// destroyed.
//
// Threads: fork it while the program has one thread.
// Errors:  fork(), exec(): as errno says. join(): kInternal when the child did not end well, so also
//          when its program could not be started.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/status.h"

namespace stoker::bench {

class ChildProcess {
 public:
  static Result<ChildProcess> fork(const std::function<Status()>& body);
  // `argv` with what it prints in the file `log`.
  static Result<ChildProcess> exec(const std::vector<std::string>& argv, const std::string& log);
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  bool is_running() const;
  void signal(int number) const;
  Status join();  // waits until it has ended by itself

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

}  // namespace stoker::bench
