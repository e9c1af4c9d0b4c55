// ProducerProcess: a forked child that runs one function; ended with its parent, or when destroyed.
//
// Threads: fork it while the program has one thread.
// Errors:  fork(): as errno says. join(): kInternal when the child did not end well.
#pragma once

#include <sys/types.h>

#include <functional>
#include <utility>

#include "shared/base/status.h"

namespace stoker::bench {

class ProducerProcess {
 public:
  static Result<ProducerProcess> fork(const std::function<Status()>& body);
  ProducerProcess(ProducerProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ProducerProcess& operator=(ProducerProcess&&) = delete;
  ~ProducerProcess();

  Status join();  // waits until it has ended by itself

 private:
  explicit ProducerProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

}  // namespace stoker::bench
