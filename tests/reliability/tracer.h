// trace: runs a program under ptrace and reports each of its system calls on files below a folder
// before it is executed. The test can kill the program at that point.
//
// The program is not instrumented, so the tested binary is the installed one. The calls of all
// threads are reported; child processes are not followed.
//
// Threads:  one at a time, in a process without other children that exit meanwhile.
// Blocking: until the program has exited.
// Errors:   exit code 127 if the program cannot be started or traced. untraceable_reason() reports
//           beforehand whether this machine permits tracing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace stoker::test {

struct FileCall {
  std::string name;         // as in its manual page: "renameat2"
  std::string path;         // absolute
  std::string to;           // of a rename or link: the new name
  uint64_t bytes = 0;       // of a write
  uint64_t occurrence = 0;  // of this call in this process, from 1
  bool changes = false;     // can change the contents of the disk, or their durability
};
std::string to_string(const FileCall& call);

enum class Verdict {
  kContinue,
  kKill,          // SIGKILL before the call is executed
  kKillInMiddle,  // of a write: writes half of the bytes, then SIGKILL
  kTerminate,     // SIGTERM, then the call is executed
  // SIGTERM; the call, of another thread than the main one, is executed when the main thread has handled it:
  // when `check` returns kContinue for a call "epoll_wait" of that thread, without a path.
  kTerminateAndHold,
  kHold,  // of such an "epoll_wait": not yet
  kSkip,  // skips the call but reports success to the program
};

// Where a run is killed: at a call that an earlier run has made.
struct KillPoint {
  std::string name;
  uint64_t occurrence = 0;
  bool in_middle = false;  // of a write
};
// Before the call, and in the middle of a write.
void add_kill_points(const FileCall& call, std::vector<KillPoint>& points);
// Sets `location` if the call is that of the point.
Verdict verdict_at(const FileCall& call, const KillPoint& point, std::string& location);

struct TraceEnd {
  int code = 0;    // valid when signal is 0
  int signal = 0;  // the signal that ended the program
};

// Standard output and error are appended to `output`, which should not be below `root`.
TraceEnd trace(const std::vector<std::string>& argv, const std::string& output,
               const std::string& root, const std::function<Verdict(const FileCall&)>& check);

// Runs the program without tracing.
TraceEnd run_to_exit(const std::vector<std::string>& argv, const std::string& output);

// Runs a program without tracing and kills it when this object ends. It must not exit before.
class BackgroundRun {
 public:
  BackgroundRun(const std::vector<std::string>& argv, const std::string& output);
  BackgroundRun(const BackgroundRun&) = delete;
  BackgroundRun& operator=(const BackgroundRun&) = delete;
  ~BackgroundRun();

 private:
  const int pid_;
};

// Why programs cannot be traced here, in one line; empty if they can.
std::optional<std::string> untraceable_reason();

}  // namespace stoker::test
