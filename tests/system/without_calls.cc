// without_hints PROGRAM [ARGUMENT…]: runs the program as it would run on a file system, or in a
// container, that has neither inotify nor flock: both system calls fail with ENOSYS.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

namespace {

bool take_away() {
  constexpr auto kRefused = static_cast<unsigned>(SECCOMP_RET_ERRNO) | ENOSYS;
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_inotify_init1, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, kRefused),
  };
  const sock_fprog filter{.len = sizeof steps / sizeof *steps, .filter = steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: without_hints PROGRAM [ARGUMENT...]\n");
    return 64;
  }
  if (!take_away()) {
    std::perror("without_hints");
    return 77;
  }
  ::execv(argv[1], argv + 1);
  std::perror(argv[1]);
  return 70;
}
