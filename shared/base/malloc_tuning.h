// malloc_tuning: configures how the allocator treats freed memory.
//
// Threads:  the main thread, before it starts other threads.
// Blocking: none. Errors: none. No effect with an allocator other than glibc's (a sanitizer's, or
//           jemalloc via LD_PRELOAD).
#pragma once

namespace stoker {

// Reuses freed memory instead of returning it to the kernel. A training step allocates and frees
// the same large blocks each time. By default glibc maps and unmaps them, and the kernel clears
// their pages on each first access, which costs a quarter of the step time of a small ResNet. The
// memory use of the process stays at its peak.
void retain_freed_memory();

}  // namespace stoker
