// A library for LD_PRELOAD: a thread of stokerd that reports how many bytes of its heap are in use,
// and leaks blocks on request. HEAP_PROBE names two FIFOs, "COMMANDS ANSWERS". A command is the
// number of blocks of 16 bytes to leak first, the answer the bytes in use after that, both as 8
// bytes. Other programs, which inherit the environment, are not affected.
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

namespace {

constexpr size_t kLeakedBlock = 16;

int commands = -1;
int answers = -1;
void* volatile leaked = nullptr;  // only the last block can be found

uint64_t bytes_in_use() {
  const struct mallinfo2 heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

void* answer_commands(void*) {
  uint64_t blocks = 0;
  while (::read(commands, &blocks, sizeof blocks) == ssize_t{sizeof blocks}) {
    for (; blocks > 0; --blocks) leaked = std::malloc(kLeakedBlock);
    const uint64_t bytes = bytes_in_use();
    if (::write(answers, &bytes, sizeof bytes) != ssize_t{sizeof bytes}) break;
  }
  return nullptr;
}

// Before main(). The thread accepts no signals, which stokerd handles in its main thread.
[[gnu::constructor]] void start_probe() {
  const char* const names = std::getenv("HEAP_PROBE");
  if (names == nullptr || std::string_view(program_invocation_short_name) != "stokerd") return;
  // A collapse of small pages adds up to 2 MiB to the resident memory.
  ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  std::istringstream in(names);
  std::string path;
  // Neither open blocks, because each FIFO is open for reading and writing.
  if (in >> path) commands = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (in >> path) answers = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  if (::pthread_create(&thread, nullptr, &answer_commands, nullptr) == 0) ::pthread_detach(thread);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
