// Snapshot: a copy of the training state in host memory, taken at a step boundary and written while
// training continues.
//
// The memory is reused for the next snapshot, so only the first snapshot of a run allocates.
//
// Threads:   filled by the trainer thread, then read by the writer thread; CheckpointWriter
//            synchronizes them.
// Blocking:  never.
// Ownership: owns the memory.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "shared/base/tensor_spec.h"
#include "shared/checkpoint/store.h"

namespace stoker::writer {

enum class Part { kModel, kOptimizer, kTrainerState, kEma };  // the file that a tensor belongs to

// Page-locks (pins) host memory so that a device can copy to it asynchronously. If both functions
// are empty, memory is not pinned.
struct PinnedAllocator {
  std::function<bool(void* bytes, size_t size)> pin;  // false: failed, memory unchanged
  std::function<void(void* bytes)> unpin;
};

class Snapshot {
 public:
  explicit Snapshot(PinnedAllocator pinned_allocator = {})
      : pinned_allocator_(std::move(pinned_allocator)) {}
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Drops the previous tensors and retains their memory for the next ones. The manifest is
  // unchanged.
  void begin();
  // Memory for one tensor, to be filled by the caller; valid until the next begin().
  std::span<std::byte> add(Part part, TensorSpec spec);
  checkpoint::Manifest& manifest() { return manifest_; }

  // Views into this object.
  checkpoint::CheckpointContent content() const;
  uint64_t bytes() const;  // total size of all tensors

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    size_t capacity = 0;
    bool is_pinned = false;
  };
  void resize(Buffer& buffer, size_t bytes);
  void release(Buffer& buffer);

  struct Entry {
    Part part;
    TensorSpec spec;
  };

  const PinnedAllocator pinned_allocator_;
  checkpoint::Manifest manifest_;
  std::vector<Entry> entries_;
  std::vector<Buffer> buffers_;  // buffers_[i] holds entries_[i]; extra buffers are spare
};

}  // namespace stoker::writer
