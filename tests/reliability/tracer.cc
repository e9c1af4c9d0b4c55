#include "tests/reliability/tracer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "tests/reliability/file_call_table.h"

namespace stoker::test {
namespace {

constexpr int kSyscallStop = SIGTRAP | 0x80;  // PTRACE_O_TRACESYSGOOD

// Runs in the child between fork and exec, so only async-signal-safe calls are allowed.
[[noreturn]] void exec_child(char* const* argv, const char* output, bool traced) {
  const int in = ::open("/dev/null", O_RDONLY);
  const int out = ::open(output, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (in < 0 || out < 0 || ::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(out, 2) < 0)
    ::_exit(127);
  if (traced && ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(127);
  ::execv(argv[0], argv);
  ::_exit(127);
}

pid_t start(const std::vector<std::string>& argv, const std::string& output, bool traced) {
  std::vector<char*> arguments;
  for (const auto& word : argv) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw std::system_error(errno, std::system_category(), "fork");
  if (pid == 0) exec_child(arguments.data(), output.c_str(), traced);
  return pid;
}

TraceEnd to_trace_end(int status) {
  return WIFSIGNALED(status) ? TraceEnd{0, WTERMSIG(status)} : TraceEnd{WEXITSTATUS(status), 0};
}

class Tracer {
 public:
  Tracer(pid_t pid, std::string root, const std::function<Verdict(const FileCall&)>& check)
      : pid_(pid), root_(std::move(root)), check_(check) {}

  TraceEnd follow() {
    for (;;) {
      int status = 0;
      const pid_t thread = ::waitpid(-1, &status, __WALL);
      if (thread < 0)
        throw std::system_error(errno, std::system_category(), "wait for the program");
      if (WIFEXITED(status) || WIFSIGNALED(status)) {
        if (thread != pid_) continue;
        return to_trace_end(status);
      }
      const int signal = handle_stop(thread, status);
      if (thread == held_) continue;
      // Fails if the thread has been killed; the next wait reports that.
      ::ptrace(PTRACE_SYSCALL, thread, nullptr, signal);
    }
  }

 private:
  // Returns the signal to deliver.
  int handle_stop(pid_t thread, int status) {
    const int signal = WSTOPSIG(status);
    if (signal == kSyscallStop) {
      handle_syscall(thread);
      return 0;
    }
    const bool is_new = threads_.insert(thread).second;
    if (is_new && thread == pid_) {  // the child has called exec
      const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
      ::ptrace(PTRACE_SETOPTIONS, thread, nullptr, options);
      return 0;
    }
    const bool is_event = (status >> 16) != 0;
    return is_event || (is_new && signal == SIGSTOP) ? 0 : signal;
  }

  void handle_syscall(pid_t thread) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0 || killed_) return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
      handle_entry(thread, info);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
      handle_exit(thread);
    }
  }

  void handle_entry(pid_t thread, const __ptrace_syscall_info& info) {
    if (held_ != 0 && thread == pid_ && is_wait(info.entry.nr) &&
        check_({.name = "epoll_wait"}) == Verdict::kContinue)
      ::ptrace(PTRACE_SYSCALL, std::exchange(held_, 0), nullptr, 0);
    const FileCallShape* const shape = find_file_call(info.entry.nr);
    if (shape == nullptr) return;
    const auto argument = [&](int index) { return info.entry.args[index]; };
    FileCall call{.name = shape->name, .changes = shape->changes};
    const auto base = [&](int index) {
      return index < 0 ? AT_FDCWD : static_cast<int>(info.entry.args[index]);
    };
    call.path = shape->is_descriptor
                    ? descriptor_path(static_cast<int>(argument(shape->path)))
                    : resolve(base(shape->directory), text_at(argument(shape->path)));
    if (shape->to >= 0) call.to = resolve(base(shape->to_directory), text_at(argument(shape->to)));
    if (!is_below_root(call.path) && !is_below_root(call.to)) return;
    if (shape->is_open) {
      const uint64_t flags = argument(shape->path + 1);
      call.changes =
          ((shape->number == SYS_openat2 ? word_at(flags) : flags) & (O_CREAT | O_TRUNC)) != 0;
    }
    if (shape->bytes >= 0) call.bytes = argument(shape->bytes);
    call.occurrence = ++occurrences_[call.name];
    apply_verdict(thread, *shape, call);
  }

  void apply_verdict(pid_t thread, const FileCallShape& shape, const FileCall& call) {
    Verdict verdict = check_(call);
    if (verdict == Verdict::kKillInMiddle && (shape.bytes != 2 || call.bytes < 2))
      verdict = Verdict::kKill;
    if (verdict == Verdict::kTerminateAndHold && thread != pid_) held_ = thread;
    if (verdict == Verdict::kTerminateAndHold) verdict = Verdict::kTerminate;
    if (verdict == Verdict::kTerminate) ::kill(pid_, SIGTERM);
    if (verdict == Verdict::kContinue || verdict == Verdict::kTerminate) return;
    if (verdict == Verdict::kKill) return kill();
    altered_[thread] = verdict;
    if (verdict == Verdict::kKillInMiddle) {
      ::ptrace(PTRACE_POKEUSER, thread, offsetof(user, regs.rdx), call.bytes / 2);
    } else {
      // An invalid call number: the kernel skips the call.
      ::ptrace(PTRACE_POKEUSER, thread, offsetof(user, regs.orig_rax), -1L);
    }
  }

  void handle_exit(pid_t thread) {
    const auto altered = altered_.find(thread);
    if (altered == altered_.end()) return;
    const Verdict verdict = altered->second;
    altered_.erase(altered);
    if (verdict == Verdict::kKillInMiddle) return kill();
    ::ptrace(PTRACE_POKEUSER, thread, offsetof(user, regs.rax), 0L);
  }

  void kill() {
    killed_ = true;
    ::kill(pid_, SIGKILL);
  }

  static bool is_wait(uint64_t number) {
    return number == SYS_epoll_wait || number == SYS_epoll_pwait || number == SYS_epoll_pwait2;
  }

  bool is_below_root(const std::string& path) const {
    return path == root_ || path.starts_with(root_ + "/");
  }

  std::string resolve(int base, const std::string& path) const {
    if (path.starts_with('/')) return path;
    const std::string above = base == AT_FDCWD ? read_link("/proc/" + std::to_string(pid_) + "/cwd")
                                               : descriptor_path(base);
    return path.empty() ? above : above + "/" + path;
  }

  std::string descriptor_path(int fd) const {
    return read_link("/proc/" + std::to_string(pid_) + "/fd/" + std::to_string(fd));
  }

  static std::string read_link(const std::string& link) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(link, error);
    return error ? "" : target.string();
  }

  // The flags are the first field of open_how. 0: it cannot be read.
  uint64_t word_at(uint64_t address) const {
    uint64_t word = 0;
    const iovec local{&word, sizeof word};
    const iovec remote{reinterpret_cast<void*>(address), sizeof word};
    return ::process_vm_readv(pid_, &local, 1, &remote, 1, 0) == sizeof word ? word : 0;
  }

  // Reads a string of the traced program, up to PATH_MAX bytes.
  std::string text_at(uint64_t address) const {
    std::string text;
    while (text.size() < 4096) {
      char block[256];
      // Read at most to the end of the page, because the next page can be unmapped.
      const size_t bytes = std::min<size_t>(sizeof block, 4096 - (address + text.size()) % 4096);
      const iovec local{block, bytes};
      const iovec remote{reinterpret_cast<void*>(address + text.size()), bytes};
      if (::process_vm_readv(pid_, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(bytes))
        return text;
      const size_t length = ::strnlen(block, bytes);
      text.append(block, length);
      if (length < bytes) return text;
    }
    return text;
  }

  const pid_t pid_;
  const std::string root_;
  const std::function<Verdict(const FileCall&)>& check_;
  std::set<pid_t> threads_;
  std::map<pid_t, Verdict> altered_;  // threads inside a modified call
  std::map<std::string, uint64_t> occurrences_;
  pid_t held_ = 0;  // a thread before a call; 0: none
  bool killed_ = false;
};

}  // namespace

std::string to_string(const FileCall& call) {
  std::string text = call.name + " (" + std::to_string(call.occurrence) + ".) " + call.path;
  if (!call.to.empty()) text += " to " + call.to;
  if (call.bytes > 0) text += ", " + std::to_string(call.bytes) + " bytes";
  return text;
}

void add_kill_points(const FileCall& call, std::vector<KillPoint>& points) {
  points.push_back({call.name, call.occurrence, false});
  if (call.name == "write") points.push_back({call.name, call.occurrence, true});
}

Verdict verdict_at(const FileCall& call, const KillPoint& point, std::string& location) {
  if (call.name != point.name || call.occurrence != point.occurrence) return Verdict::kContinue;
  location = to_string(call) + (point.in_middle ? ", in the middle" : "");
  return point.in_middle ? Verdict::kKillInMiddle : Verdict::kKill;
}

TraceEnd trace(const std::vector<std::string>& argv, const std::string& output,
               const std::string& root, const std::function<Verdict(const FileCall&)>& check) {
  return Tracer(start(argv, output, /*traced=*/true), root, check).follow();
}

TraceEnd run_to_exit(const std::vector<std::string>& argv, const std::string& output) {
  const pid_t pid = start(argv, output, /*traced=*/false);
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid)
    throw std::system_error(errno, std::system_category(), "wait");
  return to_trace_end(status);
}

BackgroundRun::BackgroundRun(const std::vector<std::string>& argv, const std::string& output)
    : pid_(start(argv, output, /*traced=*/false)) {}

BackgroundRun::~BackgroundRun() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<std::string> untraceable_reason() {
  bool seen = false;
  const TraceEnd end = trace({"/bin/ls", "/proc/self"}, "/dev/null", "/proc", [&](const FileCall&) {
    seen = true;
    return Verdict::kContinue;
  });
  if (end.code == 0 && end.signal == 0 && seen) return std::nullopt;
  return "this machine does not permit a process to trace its child (ptrace)";
}

}  // namespace stoker::test
