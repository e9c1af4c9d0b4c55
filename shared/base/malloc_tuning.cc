#include "shared/base/malloc_tuning.h"

#include <malloc.h>

#include <climits>

namespace stoker {

void retain_freed_memory() {
#ifdef __GLIBC__
  constexpr int kGrowBy = 64 << 20;  // large, so that the heap rarely has to grow
  ::mallopt(M_MMAP_THRESHOLD, INT_MAX);
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  ::mallopt(M_TOP_PAD, kGrowBy);
  // The heaps of other arenas are limited to 64 MiB; larger blocks would be mapped with mmap().
  ::mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace stoker
