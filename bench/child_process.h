// ChildProcess: a forked child that runs one function or program. It is killed when its parent
// exits or when the object is destroyed.
//
// Threads: fork before the program starts other threads.
// Errors:  fork(), exec(): by errno. join(): kInternal if the child failed, which includes a
//          program that could not be started.
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
  // Runs `argv` with its output in the file `log`.
  static Result<ChildProcess> exec(const std::vector<std::string>& argv, const std::string& log);
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  bool is_running() const;
  void signal(int number) const;
  Status join();  // waits until the child exits

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

}  // namespace stoker::bench
