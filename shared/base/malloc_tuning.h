// heap: how this process's allocator treats memory that was given back.
//
// Threads: the main thread, before it starts others.
// Blocking: none. Errors: none; where the allocator is not glibc's (a sanitizer's, jemalloc put in
//          by LD_PRELOAD), nothing changes.
#pragma once

namespace stoker {

// Memory that was given back is used again instead of going back to the kernel. A training step
// takes and gives back the same large blocks each time; glibc would map and unmap them, so that the
// kernel clears each of their pages anew at its first touch: a quarter of a small ResNet's step. The
// process keeps the memory that it had at its largest.
void retain_freed_memory();

}  // namespace stoker
