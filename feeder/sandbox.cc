#include "feeder/sandbox.h"

#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "feeder/syscall_filter.h"
#include "shared/base/log.h"

namespace stoker::feeder {
namespace {

// Address space of a worker thread before it reads anything: its stack and the arena that the C
// library reserves for it (128 MiB, half of which is released).
constexpr uint64_t kThreadBytes = 160ull << 20;
// Stack of a read-ahead thread, which shares the arenas of the other threads.
constexpr uint64_t kReadAheadThreadBytes = 16ull << 20;
// Factor for heap fragmentation, caused by blocks of many sizes.
constexpr uint64_t kReadAheadWaste = 2;

Result<uint64_t> address_space_now() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  if (!(file >> pages)) return Status(StatusCode::kIoError, "/proc/self/statm cannot be read");
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

Status limit_address_space(const SandboxOptions& options) {
  STOKER_ASSIGN_OR_RETURN(const uint64_t now, address_space_now());
  const auto threads = static_cast<uint64_t>(options.threads);
  const auto ahead = static_cast<uint64_t>(options.reads_ahead);
  if (ahead > 0) ::mallopt(M_ARENA_MAX, options.threads + 1);
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0) return Status::from_errno(errno, "RLIMIT_AS");
  const rlim_t wanted = now + threads * (kThreadBytes + options.memory_bytes) +
                        ahead * kReadAheadThreadBytes + kReadAheadWaste * options.read_ahead_bytes;
  // A lower existing limit stays in effect.
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, wanted);
  limit.rlim_max = limit.rlim_cur;
  if (::setrlimit(RLIMIT_AS, &limit) != 0) return Status::from_errno(errno, "RLIMIT_AS");
  return {};
}

}  // namespace

Status disable_core_dumps_and_privileges() {
  // One byte instead of zero: if core_pattern is a pipe, this is the only limit that disables core
  // dumps.
  const rlimit no_core{.rlim_cur = 1, .rlim_max = 1};
  ::setrlimit(RLIMIT_CORE, &no_core);
  // No other process of this user may attach to this one or read its memory, which holds samples.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
    return Status::from_errno(errno, "PR_SET_DUMPABLE");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return Status::from_errno(errno, "PR_SET_NO_NEW_PRIVS");
  return {};
}

Status enter_sandbox(const SandboxOptions& options, uint64_t& denied_syscall) {
  if (kSanitized) return {};
  if (options.memory_bytes > 0) STOKER_RETURN_IF_ERROR(limit_address_space(options));
  if (!options.filter) return {};
  const Status filtered = install_syscall_filter(denied_syscall, options.writable_fds,
                                                 options.reply_fd, options.listening_fd);
  if (filtered.code() != StatusCode::kUnreachable) return filtered;
  log_warn("worker sandbox unavailable", {{"reason", filtered.message()}});
  return {};
}

}  // namespace stoker::feeder
