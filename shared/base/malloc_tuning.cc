#include "shared/base/malloc_tuning.h"

#include <malloc.h>

#include <climits>

namespace stoker {

void retain_freed_memory() {
#ifdef __GLIBC__
  constexpr int kGrowBy = 64 << 20;  // at a time, so that growing is rare
  ::mallopt(M_MMAP_THRESHOLD, INT_MAX);
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  ::mallopt(M_TOP_PAD, kGrowBy);
  // The heaps of further arenas end at 64 MiB, and what does not fit into one is mapped after all.
  ::mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace stoker
