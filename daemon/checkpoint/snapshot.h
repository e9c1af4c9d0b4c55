// Snapshot: a copy of the training state in host memory, made at a step boundary and written while training goes on.
//
// The memory is reused from one snapshot to the next: after the first of a run nothing is allocated.
//
// Threads:  filled by the trainer, then read by the writer; CheckpointWriter hands it over.
// Blocking: never.
// Owner:    the memory.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "shared/base/tensor_spec.h"
#include "shared/checkpoint/store.h"

namespace stoker::checkpoint {

enum class Part { kModel, kOptim, kState, kEma };  // the file that a tensor goes to

// Makes host memory page-locked, so that a device copies to it by itself. Both empty: it is not.
struct PinnedAllocator {
  std::function<bool(void* bytes, size_t size)> pin;  // false: refused, and left as it is
  std::function<void(void* bytes)> unpin;
};

class Snapshot {
 public:
  explicit Snapshot(PinnedAllocator pinned_allocator = {})
      : pinned_allocator_(std::move(pinned_allocator)) {}
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Forgets the tensors before; their memory is kept for the next ones. The manifest stays as it is.
  void begin();
  // Room for one tensor, to be filled by the caller; valid until the next begin().
  std::span<std::byte> add(Part part, TensorSpec spec);
  checkpoint::Manifest& manifest() { return manifest_; }

  // Views into this object.
  checkpoint::CheckpointContent content() const;
  uint64_t bytes() const;  // of all tensors

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
  std::vector<Buffer> buffers_;  // buffers_[i] holds entries_[i]; there may be more from before
};

}  // namespace stoker::checkpoint
