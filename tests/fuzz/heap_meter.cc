#include "tests/fuzz/heap_meter.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

// glibc's own allocator.
extern "C" {
void* __libc_malloc(size_t);            // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(size_t, size_t);    // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void*, size_t);    // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(size_t, size_t);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void*);                // NOLINT(bugprone-reserved-identifier)
}

namespace {

// Constant initialization: allocations precede the start of main(). Relaxed: numbers only.
constinit std::atomic<int64_t> in_use{0}, most{0}, at_reset{0};
constinit std::atomic<uint64_t> num_blocks{0};

void* count_new(void* memory) {
  if (memory == nullptr) return nullptr;
  const auto bytes = static_cast<int64_t>(::malloc_usable_size(memory));
  const int64_t now = in_use.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t before = most.load(std::memory_order_relaxed);
  // check_tests: ends when another thread has stored as much.
  while (now > before && !most.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
  num_blocks.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void count_freed(void* memory) {
  if (memory == nullptr) return;
  in_use.fetch_sub(static_cast<int64_t>(::malloc_usable_size(memory)), std::memory_order_relaxed);
}

}  // namespace

extern "C" {

void* malloc(size_t bytes) noexcept { return count_new(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) noexcept { return count_new(__libc_calloc(count, bytes)); }
void* memalign(size_t alignment, size_t bytes) noexcept {
  return count_new(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return count_new(__libc_memalign(alignment, bytes));
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  *memory = count_new(__libc_memalign(alignment, bytes));
  return *memory == nullptr ? ENOMEM : 0;
}
void* realloc(void* memory, size_t bytes) noexcept {
  const auto before = static_cast<int64_t>(memory == nullptr ? 0 : ::malloc_usable_size(memory));
  void* const moved = __libc_realloc(memory, bytes);
  if (moved == nullptr && bytes > 0) return nullptr;
  in_use.fetch_sub(before, std::memory_order_relaxed);
  return count_new(moved);
}
void free(void* memory) noexcept {
  count_freed(memory);
  __libc_free(memory);
}

}  // extern "C"

namespace stoker::fuzz {

void reset_heap_meter() {
  at_reset = in_use.load();
  most = in_use.load();
  num_blocks = 0;
}

HeapUse read_heap_meter() {
  return {.bytes = static_cast<uint64_t>(most.load() - at_reset.load()),
          .blocks = num_blocks.load()};
}

}  // namespace stoker::fuzz
