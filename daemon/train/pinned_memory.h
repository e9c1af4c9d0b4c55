// PinnedMemory: page-locks host memory for the lifetime of this object, so that copies from it are
// asynchronous.
//
// The memory is locked in chunks that end at slot boundaries, so a copy never spans two chunks. If
// the driver rejects a chunk (limit reached, or out of memory), the chunks locked so far are used,
// the rest is copied more slowly, and the log reports both sizes.
//
// Threads:   one.
// Ownership: does not own the memory, which must outlive this object.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace stoker::train {

class PinnedMemory {
 public:
  struct Driver {
    std::function<bool(void* bytes, size_t size)> pin;
    std::function<void(void* bytes)> unpin;
  };

  // `memory` consists of slots of `slot_bytes`; a chunk has about `chunk_bytes`.
  PinnedMemory(Driver driver, std::span<std::byte> memory, size_t slot_bytes,
               size_t chunk_bytes = size_t{1} << 30);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

 private:
  const Driver driver_;
  std::vector<std::byte*> chunks_;
};

}  // namespace stoker::train
