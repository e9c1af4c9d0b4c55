// Process: a child process of a test, which is killed when the object is destroyed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/eventually.h"

namespace stoker::test {

struct Exit {
  int code = 0;    // valid when signal is 0
  int signal = 0;  // the signal that ended the process
};

class Process {
 public:
  // Starts `argv`. Standard output and error are appended to `log`, standard input is /dev/null.
  Process(const std::vector<std::string>& argv, const std::string& log);
  ~Process();  // sends SIGKILL and reaps
  Process(Process&&) noexcept;
  Process(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Sends SIGKILL and waits for the end. False if the process has exited before, which wait() returns
  // then: it was not killed.
  bool kill();
  // Empty if the process is still running after `timeout`, on a slow machine longer.
  std::optional<Exit> wait(std::chrono::milliseconds timeout);
  const std::string& log() const { return log_; }

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
  std::optional<Exit> exit_;
  std::string log_;
};

// Returns false if `timeout`, on a slow machine longer, passes before `condition` holds.
template <typename Condition>
bool wait_until(std::chrono::milliseconds timeout, Condition&& condition);

void sleep_between_polls();

template <typename Condition>
bool wait_until(std::chrono::milliseconds timeout, Condition&& condition) {
  Patience patience(timeout);
  while (!condition()) {
    if (patience.is_over()) return false;
    sleep_between_polls();
  }
  return true;
}

}  // namespace stoker::test
