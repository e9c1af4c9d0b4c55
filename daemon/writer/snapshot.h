// Snapshot: a copy of the training state in host memory, taken at a step boundary and written while
// training continues.
//
// The tensors are in one block of memory, and in more if they do not fit, which are reused for the
// next snapshot. reserve() allocates
// and page-locks it before training starts, since both take long for gigabytes.
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
  // Called with memory that is reused or freed; empty: nothing. For tests: makes late reads of it visible.
  std::function<void(void* bytes, size_t size)> poison = {};
};

class Snapshot {
 public:
  explicit Snapshot(PinnedAllocator pinned_allocator = {})
      : pinned_allocator_(std::move(pinned_allocator)) {}
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Memory for tensors of `bytes` in total, each with its size rounded up by aligned(). Throws
  // std::bad_alloc.
  void reserve(uint64_t bytes);
  static uint64_t aligned(uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Drops the previous tensors and retains their memory for the next ones. The manifest is
  // unchanged.
  void begin();
  // Memory for one tensor, to be filled by the caller; valid until the next begin().
  std::span<std::byte> add(Part part, TensorSpec spec);
  checkpoint::Manifest& manifest() { return manifest_; }
  // Of a sharded optimizer state, of which this process has one part; see CheckpointContent.
  // `bytes`: of all shards. Until the next begin().
  void set_shard(int num_shards, uint64_t bytes, checkpoint::TensorRanges ranges) {
    num_shards_ = num_shards;
    optim_bytes_ = bytes;
    ranges_ = std::move(ranges);
  }

  // Views into this object.
  checkpoint::CheckpointContent content() const;
  uint64_t bytes() const;  // total size of all tensors

 private:
  static constexpr uint64_t kAlignment = 64;

  struct Block {
    std::byte* memory = nullptr;
    size_t capacity = 0;
    bool is_pinned = false;
  };
  Block allocate(size_t bytes) const;
  void release(Block& block) const;

  struct Entry {
    Part part;
    TensorSpec spec;
    std::byte* memory;
  };

  const PinnedAllocator pinned_allocator_;
  checkpoint::Manifest manifest_;
  std::vector<Entry> entries_;
  int num_shards_ = 0;
  uint64_t optim_bytes_ = 0;  // of all shards
  checkpoint::TensorRanges ranges_;
  std::vector<Block> blocks_;  // filled in this order
  size_t current_ = 0;         // the block that is filled
  size_t used_ = 0;            // bytes of it
};

}  // namespace stoker::writer
