// The allocator of the tensors of a fake device, whose memory is host memory: overwrites memory when it
// is allocated and when it is freed, so that nothing can rely on what it contains, and can fail.
//
// Threads: any. Install it before there are threads that allocate tensors.
#pragma once

#include <cstdint>
#include <optional>

namespace stoker::fake_device {

// For the rest of the process. Again: no effect.
void install_device_allocator();
// Of all threads, since then.
int64_t allocated_bytes();

// While it exists, an allocation of this thread throws c10::OutOfMemoryError: the one after the first
// `after` ones. nullopt: none.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::optional<uint64_t> after);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
};

// As CUDA's allocator does.
[[noreturn]] void throw_out_of_memory();

}  // namespace stoker::fake_device
