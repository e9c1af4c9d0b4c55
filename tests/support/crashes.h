// crashes: what a decoder with an error does, for worker processes of tests.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace stoker::test {

// Not raise(): a thread can block the signal.
inline void write_invalid_address() {
  void* page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *static_cast<volatile char*>(page) = 1;
}

inline void loop_forever() {
  std::atomic<uint64_t> iterations{0};
  while (true) ++iterations;
}

inline void allocate_too_much() {
  const std::vector<char> memory(4ull << 30, 1);
  if (memory.back() != 1) std::abort();
}

}  // namespace stoker::test
