#include "feeder/syscall_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <string>

#include <asm/ioctls.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

namespace stoker::feeder {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "which AUDIT_ARCH_ is this machine's?"
#endif

// The call is allowed if (argument & mask) == value. A mask of 0 ignores the argument.
struct Rule {
  uint32_t call;
  uint32_t argument = 0;
  uint32_t mask = 0;
  uint32_t value = 0;
};

constexpr uint32_t kAll = ~0u;
constexpr uint32_t kWriting = O_ACCMODE | O_CREAT | O_TRUNC;
constexpr uint32_t kNewSpaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

// Ordered by frequency: each call is compared with the list up to its own entry.
constexpr Rule kRules[] = {
    {SYS_pread64},
    {SYS_futex},
    {SYS_read},
    {SYS_write, 0, kAll, STDERR_FILENO},
    {SYS_clock_nanosleep},
    {SYS_clock_gettime},
    // Files, read-only.
    {SYS_openat, 2, kWriting, 0},
    {SYS_close},
    {SYS_fstat},    // after each batch: whether a file has changed
    {SYS_fstatfs},  // whether inodes of the file system are stable
    {SYS_newfstatat},
    {SYS_statx},
    {SYS_lseek},
    {SYS_readv},
    {SYS_preadv},
    {SYS_preadv2},
    {SYS_readahead},
    {SYS_getdents64},
    {SYS_readlinkat},
    {SYS_faccessat},
    {SYS_faccessat2},
    {SYS_getcwd},
    {SYS_fcntl, 1, kAll, F_GETFD},
    {SYS_fcntl, 1, kAll, F_SETFD},
    {SYS_fcntl, 1, kAll, F_GETFL},
    {SYS_fcntl, 1, kAll, F_GET_SEALS},
    {SYS_ioctl, 1, kAll, TCGETS},  // isatty()
    // Memory, never executable.
    {SYS_mmap, 2, PROT_EXEC, 0},
    {SYS_mprotect, 2, PROT_EXEC, 0},
    {SYS_munmap},
    {SYS_mremap},
    {SYS_madvise},
    {SYS_brk},
    // Threads of this process.
    {SYS_clone, 0, kNewSpaces | CLONE_THREAD, CLONE_THREAD},
    {SYS_set_robust_list},
    {SYS_rseq},
    {SYS_set_tid_address},
    {SYS_rt_sigprocmask},
    {SYS_rt_sigaction, 0, kAll,
     32},  // signals reserved by the C library, set up when the first thread starts
    {SYS_rt_sigaction, 0, kAll, 33},
    {SYS_rt_sigreturn},
    {SYS_sigaltstack},
    {SYS_sched_yield},
    {SYS_sched_getaffinity},
    {SYS_membarrier},
    {SYS_prctl, 0, kAll, PR_SET_NAME},
    {SYS_prctl, 0, kAll, PR_SET_VMA},  // memory names, set by newer C libraries
    // Waiting, time and identity.
    {SYS_restart_syscall},
    {SYS_nanosleep},
    {SYS_ppoll},
    {SYS_clock_getres},
    {SYS_gettimeofday},
    {SYS_getpid},
    {SYS_gettid},
    {SYS_getppid},
    {SYS_getuid},
    {SYS_geteuid},
    {SYS_getcpu},
    {SYS_getrusage},
    {SYS_uname},
    {SYS_sysinfo},
    {SYS_getrandom},
    {SYS_writev, 0, kAll, STDERR_FILENO},
    {SYS_exit},
    {SYS_exit_group},
#if defined(__x86_64__)  // older variants of the above, which newer architectures do not have
    {SYS_open, 1, kWriting, 0},
    {SYS_stat},
    {SYS_lstat},
    {SYS_access},
    {SYS_readlink},
    {SYS_poll},
    {SYS_time},
#endif
};

// Calls that could overwrite a log file to which standard error is redirected: they move its offset
// or map it. Denied for descriptors 0 to 2, which can be the same open file; no call of the table
// duplicates a descriptor.
struct StandardStreamRule {
  uint32_t call;
  uint32_t argument;  // the descriptor
};

constexpr StandardStreamRule kStandardStreamRules[] = {{SYS_lseek, 0}, {SYS_mmap, 4}};

// ---- BPF

constexpr uint32_t at_argument(uint32_t index) {
  return offsetof(seccomp_data, args) + index * sizeof(uint64_t);  // its lower half
}

constexpr sock_filter load(uint32_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset); }
constexpr sock_filter return_value(uint32_t verdict) { return BPF_STMT(BPF_RET | BPF_K, verdict); }
// Continues if the word is `value`, otherwise skips `skipped` instructions.
constexpr sock_filter unless_skip(uint32_t value, uint8_t skipped) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped);
}

void append(std::vector<sock_filter>& program, const Rule& rule) {
  if (rule.mask == 0) {
    program.insert(program.end(), {unless_skip(rule.call, 1), return_value(SECCOMP_RET_ALLOW)});
    return;
  }
  program.insert(program.end(),
                 {unless_skip(rule.call, 5), load(at_argument(rule.argument)),
                  BPF_STMT(BPF_ALU | BPF_AND | BPF_K, rule.mask), unless_skip(rule.value, 1),
                  return_value(SECCOMP_RET_ALLOW), load(offsetof(seccomp_data, nr))});
}

void append(std::vector<sock_filter>& program, const StandardStreamRule& rule) {
  program.insert(program.end(), {unless_skip(rule.call, 4), load(at_argument(rule.argument)),
                                 BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, STDERR_FILENO, 1, 0),
                                 return_value(SECCOMP_RET_TRAP), load(offsetof(seccomp_data, nr))});
}

// pwrite() to the first `size` bytes of a file. BPF has 32-bit words, so the end of the write is
// computed in halves. The kernel rejects negative offsets.
void append_pwrite(std::vector<sock_filter>& program, int descriptor, uint64_t size) {
  constexpr uint32_t kCount = at_argument(2), kOffset = at_argument(3);
  constexpr uint32_t kHigh = sizeof(uint32_t);
  const auto low = static_cast<uint32_t>(size), high = static_cast<uint32_t>(size >> 32);
  const std::vector<sock_filter> block{
      unless_skip(SYS_pwrite64, 20),
      load(at_argument(0)),
      unless_skip(static_cast<uint32_t>(descriptor), 17),
      load(kCount + kHigh),
      unless_skip(0, 15),
      // The lower half of the end.
      load(kOffset),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      load(kCount),
      BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0),
      BPF_STMT(BPF_ST, 0),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_X, 0, 3, 0),
      // The upper half, with and without carry.
      load(kOffset + kHigh),
      BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1),
      BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
      load(kOffset + kHigh),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, high, 4, 0),
      unless_skip(high, 2),
      BPF_STMT(BPF_LD | BPF_MEM, 0),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, low, 1, 0),
      return_value(SECCOMP_RET_ALLOW),
      load(offsetof(seccomp_data, nr)),
  };
  program.insert(program.end(), block.begin(), block.end());
}

// A pointer is null in both halves.
void append_if_null(std::vector<sock_filter>& program, uint32_t call, uint32_t argument) {
  const uint32_t pointer = at_argument(argument);
  program.insert(
      program.end(),
      {unless_skip(call, 6), load(pointer), unless_skip(0, 3), load(pointer + sizeof(uint32_t)),
       unless_skip(0, 1), return_value(SECCOMP_RET_ALLOW), load(offsetof(seccomp_data, nr))});
}

// Allows sends without an address and with these flags only: others have had errors in the kernel.
void append_send(std::vector<sock_filter>& program, uint32_t flags) {
  const uint32_t address = at_argument(4);
  program.insert(
      program.end(),
      {unless_skip(SYS_sendto, 8), load(at_argument(3)), unless_skip(flags, 5), load(address),
       unless_skip(0, 3), load(address + sizeof(uint32_t)), unless_skip(0, 1),
       return_value(SECCOMP_RET_ALLOW), load(offsetof(seccomp_data, nr))});
}

void append_missing(std::vector<sock_filter>& program, uint32_t call) {
  program.insert(program.end(), {unless_skip(call, 1),
                                 return_value(SECCOMP_RET_ERRNO | (ENOSYS & SECCOMP_RET_DATA))});
}

// A kernel without filters reports EINVAL for any filter, one with filters EFAULT for none.
bool has_seccomp_filters() {
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, nullptr) == -1 && errno == EFAULT;
}

// ---- Violations

std::atomic<uint64_t*> denied_syscall_word{nullptr};  // set before the filter is installed

void on_violation(int, siginfo_t* info, void*) {
  // Async-signal-safe; the system calls used here are in the table.
  if (uint64_t* word = denied_syscall_word.load())
    std::atomic_ref(*word).store(static_cast<uint64_t>(info->si_syscall) + 1);
  // The default action terminates the process.
  ::syscall(SYS_tgkill, ::getpid(), ::syscall(SYS_gettid), SIGSYS);
}

Status watch_violations(uint64_t& denied_syscall) {
  denied_syscall_word = &denied_syscall;
  struct sigaction action {};
  action.sa_sigaction = on_violation;
  // The handler runs once and does not block SIGSYS, so the signal that it raises terminates the
  // process.
  action.sa_flags = SA_SIGINFO | static_cast<int>(SA_RESETHAND) | SA_NODEFER;
  if (::sigaction(SIGSYS, &action, nullptr) != 0)
    return Status::from_errno(errno, "handle SIGSYS in a worker process");
  return {};
}

}  // namespace

std::vector<sock_filter> filter_program(int pid, std::span<const int> writable_fds,
                                        std::optional<int> reply_fd,
                                        std::optional<int> listening_fd) {
  std::vector<sock_filter> program{
      load(offsetof(seccomp_data, arch)), unless_skip(kArchitecture, 1),
      BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
      // Another architecture has other system call numbers.
      return_value(SECCOMP_RET_KILL_PROCESS), load(offsetof(seccomp_data, nr))};
  for (const StandardStreamRule& rule : kStandardStreamRules) append(program, rule);
  for (const Rule& rule : kRules) append(program, rule);
  for (const int descriptor : writable_fds) {
    struct stat info {};  // after a failure of fstat(), no byte can be written
    (void)::fstat(descriptor, &info);
    append_pwrite(program, descriptor, static_cast<uint64_t>(info.st_size));
  }
  if (reply_fd) append(program, {SYS_write, 0, kAll, static_cast<uint32_t>(*reply_fd)});
  if (listening_fd) {
    append(program, {SYS_accept4, 0, kAll, static_cast<uint32_t>(*listening_fd)});
    append_send(program, MSG_NOSIGNAL | MSG_DONTWAIT);
    append(program, {SYS_getsockopt, 2, kAll, SO_PEERCRED});
    append(program, {SYS_shutdown, 1, kAll, SHUT_RD});
  }
  // For abort() and the SIGSYS handler.
  append(program, {SYS_tgkill, 0, kAll, static_cast<uint32_t>(pid)});
  // The process may read its resource limits but not set them.
  append_if_null(program, SYS_prlimit64, 2);
  // A filter cannot inspect the arguments of these calls because they are in memory. The C library
  // falls back to clone and openat when they are reported as missing.
  append_missing(program, SYS_clone3);
  append_missing(program, SYS_openat2);
  program.push_back(return_value(SECCOMP_RET_TRAP));
  return program;
}

Status install_syscall_filter(uint64_t& denied_syscall, std::span<const int> writable_fds,
                              std::optional<int> reply_fd, std::optional<int> listening_fd) {
  STOKER_RETURN_IF_ERROR(watch_violations(denied_syscall));
  auto instructions = filter_program(::getpid(), writable_fds, reply_fd, listening_fd);
  const sock_fprog program{.len = static_cast<unsigned short>(instructions.size()),
                           .filter = instructions.data()};
  const long result =
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
  const int cause = errno;
  if (result == 0) return {};
  if (result > 0)
    return Status(StatusCode::kInternal,
                  "the seccomp filter of a worker process cannot be applied to its thread " +
                      std::to_string(result));
  if (cause == ENOSYS || (cause == EINVAL && !has_seccomp_filters()))
    return Status(StatusCode::kUnreachable, "this kernel has no seccomp filters");
  const std::string what = "seccomp filter of a worker process (" +
                           std::to_string(instructions.size()) + " instructions)";
  // Such as one of more than BPF_MAXINSNS.
  if (cause == EINVAL) return Status(StatusCode::kInternal, what + ": rejected as invalid");
  return Status::from_errno(cause, what);
}

}  // namespace stoker::feeder
