// without_calls ERROR:CALL[,CALL…] PROGRAM [ARGUMENT…]: runs the program with a seccomp filter that
// makes these system calls fail with ERROR, as some file systems, containers or service managers
// do. Example: `without_calls ENOSYS:inotify_init1,flock stoker-eval …`. The call `seccomp`
// includes prctl(PR_SET_SECCOMP).
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr uint32_t kAnyArgument = ~0u;

struct Refusal {
  uint32_t call;
  uint32_t first_argument = kAnyArgument;
};

bool add_refusals(const std::string& name, std::vector<Refusal>& refusals) {
  if (name == "inotify_init1")
    refusals.push_back({SYS_inotify_init1});
  else if (name == "flock")
    refusals.push_back({SYS_flock});
  else if (name == "seccomp")
    refusals.insert(refusals.end(), {{SYS_seccomp}, {SYS_prctl, PR_SET_SECCOMP}});
  else
    return false;
  return true;
}

std::optional<uint32_t> parse_error(const std::string& name) {
  if (name == "ENOSYS") return ENOSYS;
  if (name == "EPERM") return EPERM;
  return std::nullopt;
}

// The filter for ERROR:CALL[,CALL…]; empty on a parse error.
std::vector<sock_filter> filter_of(const std::string& text) {
  const size_t colon = text.find(':');
  const auto error = parse_error(text.substr(0, colon));
  if (colon == std::string::npos || !error) return {};
  std::vector<Refusal> refusals;
  std::istringstream calls(text.substr(colon + 1));
  for (std::string name; std::getline(calls, name, ',');)
    if (!add_refusals(name, refusals)) return {};
  const sock_filter reject =
      BPF_STMT(BPF_RET | BPF_K, static_cast<uint32_t>(SECCOMP_RET_ERRNO) | *error);
  const sock_filter load_call = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
  std::vector<sock_filter> filter{load_call};
  for (const Refusal& rejection : refusals) {
    if (rejection.first_argument == kAnyArgument) {
      filter.insert(filter.end(),
                    {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rejection.call, 0, 1), reject});
      continue;
    }
    filter.insert(
        filter.end(),
        {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rejection.call, 0, 4),
         BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rejection.first_argument, 0, 1), reject, load_call});
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return filter;
}

bool install(std::vector<sock_filter> filter) {
  const sock_fprog program{.len = static_cast<unsigned short>(filter.size()),
                           .filter = filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto filter = argc < 3 ? std::vector<sock_filter>{} : filter_of(argv[1]);
  if (filter.empty()) {
    std::fprintf(stderr, "usage: without_calls ERROR:CALL[,CALL...] PROGRAM [ARGUMENT...]\n");
    return 64;
  }
  if (!install(filter)) {
    std::perror("without_calls");
    return 77;
  }
  ::execv(argv[2], argv + 2);
  std::perror(argv[2]);
  return 70;
}
