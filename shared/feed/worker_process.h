// WorkerProcess: one stoker-feed child process. It is tracked by a pidfd, so that a reused process
// id is never waited for or killed.
//
// Threads:   one at a time.
// Blocking:  kill_and_reap(), and therefore the destructor, up to kExitTimeout; nothing else
//            blocks.
// Ownership: the destructor ends the child, unless the child is in an uninterruptible sleep; it
//            then ends when it wakes and is reaped by init. The child also ends with the thread
//            that spawned it (PR_SET_PDEATHSIG), so no child remains after a crash of its parent.
// Errors:    spawn(): errno's text with the program's path.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::feed {

// The state of a process from /proc, for diagnosing a hang: "stopped", "running", "in
// uninterruptible sleep (D) in nfs_wait_bit_killable", …. Empty if the process does not exist.
std::string process_state(pid_t pid);
// The same for one thread, from the text of its stat and wchan files in /proc.
std::string describe_process_state(const std::string& stat, const std::string& wait_channel);

// Total CPU time of all threads of the process; 0 if it does not exist.
std::chrono::nanoseconds cpu_time(pid_t pid);

class WorkerProcess {
 public:
  // The exit status of a process.
  struct End {
    bool by_signal = false;
    int code = 0;  // exit code or signal number
    bool clean() const { return !by_signal && code == 0; }
    bool is_sandbox_refused() const {
      return !by_signal && code == static_cast<int>(ExitCode::kSandbox);
    }
    std::string to_string() const;  // "exit code 78", "signal 9 (Killed)"
    // Of a run that it ends: an exit code has a cause that a restart does not change, a signal is a crash. SIGKILL,
    // unless the parent has sent it: kOutOfMemory, because the kernel does when memory runs out.
    StatusCode status_code() const;
    std::string hint() const;  // what to do if it happens again and again
  };

  static constexpr int kFirstFd = 3;
  // `fds` become the descriptors kFirstFd, kFirstFd + 1, … of the child. It has no others but
  // standard error; standard input and output are /dev/null. Terminal and service signals (INT,
  // TERM, HUP, USR1) are blocked in the child from the start: they are meant for its parent, which
  // ends its workers itself.
  static Result<WorkerProcess> spawn(const std::string& program,
                                     const std::vector<std::string>& arguments,
                                     std::span<const int> fds);
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&& other) noexcept;
  ~WorkerProcess();

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable after the process has ended
  // Reaps the process if it has ended.
  std::optional<End> try_reap();
  void kill();
  // False: the kernel has not ended the process within `timeout`, and it is abandoned.
  bool kill_and_reap(std::chrono::milliseconds timeout = kExitTimeout);

 private:
  static constexpr std::chrono::milliseconds kExitTimeout{3000};

  WorkerProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  std::optional<End> wait(int options);

  pid_t pid_ = -1;  // -1: reaped or moved from
  UniqueFd pidfd_;
};

// The path of stoker-feed, next to this program or in ../libexec/stoker when installed. kNotFound:
// names the searched locations.
Result<std::string> find_feed_program();

// An error of reading what was readable when the run started: the file system has lost it, such as by
// an unmount, so that a later start can succeed. kIoError instead of kNotFound, kPermission and kTimedOut;
// others are unchanged.
Status as_lost_access(const Status& error);

// The error of a program whose worker process has End::is_sandbox_refused(). kPermission.
Status sandbox_refused();

}  // namespace stoker::feed
