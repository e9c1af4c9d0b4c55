// PinnedMemory: host memory that is page-locked for as long as this lives, so that copies from it run
// beside everything else.
//
// It is locked in chunks that end where slots end: a copy never goes over two of them. Where the
// driver refuses (a limit, or no memory), what is locked already is used, and the rest is copied
// more slowly; the log says how much.
//
// Threads: one.
// Owner:   not the memory, which must outlive this object.
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

  // `memory` consists of slots of `slot_bytes`; chunks of about `chunk_bytes`.
  PinnedMemory(Driver driver, std::span<std::byte> memory, size_t slot_bytes,
               size_t chunk_bytes = size_t{1} << 30);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  size_t pinned_bytes() const { return pinned_bytes_; }

 private:
  const Driver driver_;
  std::vector<std::byte*> chunks_;
  size_t pinned_bytes_ = 0;
};

}  // namespace stoker::train
