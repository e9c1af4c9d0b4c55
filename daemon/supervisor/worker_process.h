// WorkerProcess: one stoker-feed child, held by a pidfd, so that it is this child that is waited
// for and killed, and never a stranger under a number used again.
//
// Threads:  one at a time.
// Blocking: kill_and_reap(), and with it the destructor, at most kPatience; nothing else waits.
// Owner:    the destructor leaves no child behind but one that the kernel cannot end: it sleeps
//           uninterruptibly, ends when it wakes, and is reaped by init. The child ends with the thread that spawned it
//           (PR_SET_PDEATHSIG), so that a stokerd killed without warning leaves none either.
// Errors:   spawn(): errno's text with the program's path.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::supervisor {

// What /proc says of a process, for people who want to know why it hangs: empty, or no time, where the
// process is gone. "stopped", "running", "in uninterruptible sleep (D) in nfs_wait_bit_killable", ….
std::string process_state(pid_t pid);
// The same of one thread, from the text of its stat and wchan in /proc.
std::string describe_process_state(const std::string& stat, const std::string& wait_channel);

// Of all its threads, ever.
std::chrono::nanoseconds cpu_time(pid_t pid);

// The descriptors under which a child finds the ring and the quarantine table.
inline constexpr int kRingFd = 3;
inline constexpr int kQuarantineFd = 4;

class WorkerProcess {
 public:
  // How a process ended.
  struct End {
    bool by_signal = false;
    int code = 0;  // exit code or signal
    bool clean() const { return !by_signal && code == 0; }
    bool is_sandbox_refused() const {
      return !by_signal && code == static_cast<int>(ExitCode::kSandbox);
    }
    std::string to_string() const;  // "exit code 78", "signal 9 (Killed)"
  };

  // Terminal and service signals (INT, TERM, HUP, USR1) are blocked in the child from its first
  // instruction: they are meant for stokerd, which ends its readers through the ring.
  static Result<WorkerProcess> spawn(const std::string& program,
                                     const std::vector<std::string>& arguments, int ring_fd,
                                     int quarantine_fd);
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&& other) noexcept;
  ~WorkerProcess();

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable when the process has ended
  // Reaps it when it has ended.
  std::optional<End> try_reap();
  void kill();
  // False: the kernel has not ended it within `patience`, and it is left alone.
  bool kill_and_reap(std::chrono::milliseconds patience = kPatience);

 private:
  static constexpr std::chrono::milliseconds kPatience{3000};

  WorkerProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  std::optional<End> wait(int options);

  pid_t pid_ = -1;  // -1: reaped, or moved from
  UniqueFd pidfd_;
};

// stoker-feed beside this program, or in ../libexec/stoker as it is installed. kNotFound: names
// where it was looked for.
Result<std::string> find_feed_program();

}  // namespace stoker::supervisor
