// install_host_allocator(): installs a CPU tensor allocator that avoids heap fragmentation, and
// makes the process retain freed memory.
//
// LibTorch allocates aligned memory with posix_memalign(). glibc before 2.38 allocates slightly
// more for that and frees the remainders on both sides. Small long-lived allocations then land in
// these remainders, and after the tensor is freed its block is too small for the next tensor of the
// same size. A program that occasionally stores a few bytes, such as a journal record, loses a
// tensor-sized block each time. A slightly larger block from malloc() is freed as a single block
// instead.
//
// Threads:  call it before the first tensor is created.
// Blocking: never.
// Errors:   none; if an allocation fails, LibTorch's own allocator is tried, which throws
//           LibTorch's out-of-memory error.
#pragma once

namespace stoker::model {

void install_host_allocator();

}  // namespace stoker::model
