// heap_meter: counts the memory of the program that is linked with it, whose malloc() it replaces.
//
// Threads: any; the numbers are those of all threads.
#pragma once

#include <cstdint>

namespace stoker::fuzz {

struct HeapUse {
  uint64_t bytes = 0;   // the most that were in use at a time
  uint64_t blocks = 0;  // allocations
};

// Counts from here on; bytes that are in use already do not count.
void reset_heap_meter();
HeapUse read_heap_meter();

}  // namespace stoker::fuzz
