#include "daemon/stacks/traced_process.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace stoker::stacks {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;
constexpr auto kPollInterval = 2ms;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value of `key` in a file of lines "key:<tab>value".
std::string field_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":\t")) return line.substr(key.size() + 2);
  return {};
}

std::string proc(pid_t pid) { return "/proc/" + std::to_string(pid); }

std::vector<pid_t> thread_ids(pid_t pid) {
  std::vector<pid_t> ids;
  std::error_code error;
  for (fs::directory_iterator entry(proc(pid) + "/task", error), end; !error && entry != end;
       entry.increment(error))
    ids.push_back(std::atoi(entry->path().filename().c_str()));
  std::ranges::sort(ids);
  return ids;
}

TracedThread describe(pid_t pid, pid_t tid) {
  const std::string folder = proc(pid) + "/task/" + std::to_string(tid);
  TracedThread thread{.tid = tid,
                      .name = first_line(folder + "/comm"),
                      .state = field_of(folder + "/status", "State"),
                      .kernel_wait = first_line(folder + "/wchan"),
                      .problem = {}};
  if (thread.kernel_wait == "0") thread.kernel_wait.clear();
  return thread;
}

// Whether the thread has stopped or ended.
bool has_stopped(TracedThread& thread) {
  int status = 0;
  const pid_t changed = ::waitpid(thread.tid, &status, __WALL | WNOHANG);
  if (changed == 0) return false;
  if (changed < 0 || !WIFSTOPPED(status)) {
    thread.problem = "it has ended";
  } else if (status >> 16 != PTRACE_EVENT_STOP) {
    thread.pending_signal = WSTOPSIG(status);
  }
  return true;
}

}  // namespace

TracedProcess::TracedProcess(pid_t pid, std::chrono::milliseconds timeout) : pid_(pid) {
  for (const pid_t tid : thread_ids(pid)) threads_.push_back(describe(pid, tid));
  std::vector<TracedThread*> waiting;
  for (TracedThread& thread : threads_) {
    if (::ptrace(PTRACE_SEIZE, thread.tid, nullptr, nullptr) != 0) {
      thread.problem = explain_ptrace_error(pid, errno);
      continue;
    }
    (void)::ptrace(PTRACE_INTERRUPT, thread.tid, nullptr, nullptr);
    waiting.push_back(&thread);
  }
  const auto end = SteadyClock::now() + timeout;
  while (true) {
    std::erase_if(waiting, [](TracedThread* thread) { return has_stopped(*thread); });
    if (waiting.empty() || SteadyClock::now() >= end) break;
    std::this_thread::sleep_for(kPollInterval);
  }
  for (TracedThread* thread : waiting)
    thread->problem = "it is in a system call that cannot be interrupted";
}

TracedProcess::~TracedProcess() {
  for (const TracedThread& thread : threads_)
    if (thread.is_stopped())
      (void)::ptrace(PTRACE_DETACH, thread.tid, nullptr, static_cast<long>(thread.pending_signal));
}

std::vector<pid_t> child_processes(pid_t pid) {
  std::vector<pid_t> children;
  for (const pid_t tid : thread_ids(pid)) {
    std::ifstream file(proc(pid) + "/task/" + std::to_string(tid) + "/children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  std::ranges::sort(children);
  return children;
}

std::string process_name(pid_t pid) {
  const std::string name = first_line(proc(pid) + "/comm");
  return name.empty() ? "?" : name;
}

std::string explain_ptrace_error(pid_t pid, int error) {
  if (error == ESRCH) return "it has ended";
  const std::string text = std::string("ptrace: ") + std::strerror(error);
  if (error != EPERM) return text;
  if (const std::string tracer = field_of(proc(pid) + "/status", "TracerPid");
      !tracer.empty() && tracer != "0")
    return text + ": process " + tracer + " traces it already";
  struct stat info {};
  std::istringstream uids(field_of(proc(pid) + "/status", "Uid"));
  uid_t uid = 0;
  // The kernel gives the files of a process to root if others of its user may not look into it.
  if ((uids >> uid) && ::stat((proc(pid) + "/mem").c_str(), &info) == 0 && info.st_uid != uid)
    return text + ": the process is protected from its own user; only root may read its stacks";
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (scope == "2" || scope == "3")
    return text + ": kernel.yama.ptrace_scope is " + scope + "; 1 permits it";
  return text +
         ": permit the system call in the container's seccomp profile, or in SystemCallFilter= of "
         "the unit";
}

}  // namespace stoker::stacks
