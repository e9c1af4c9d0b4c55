// BatchReceiver: passes the batches of a ring to the trainer such that no value that is used as an
// index can change after it was checked.
//
// A process that maps the ring can write to a slot at any time, also while its batch is in use.
// Labels, tokens, lengths and all other integers are therefore copied to private memory when a batch
// is received, and everything that validates or uses them reads the copy. Floating-point tensors and
// images stay in the slot, because any bytes are a valid input.
//
// Threads:   one, the consumer of the ring.
// Blocking:  never.
// Ownership: a received batch refers to memory of this object and of the ring until its ticket is
//            released. The plan of the shapes must outlive this object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "shared/base/tensor_spec.h"
#include "shared/feed/batch_shapes.h"
#include "shared/ring/batch_layout.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feed {

struct ReceivedBatch {
  uint64_t ticket = 0;
  const ring::BatchLayout& layout;  // that of the slot, also for the copied tensors
  // In the order of the layout. Copied tensors that follow each other in the layout do so in memory,
  // at the same distance; likewise those in the slot.
  std::vector<std::span<const std::byte>> tensors;
};

class BatchReceiver {
 public:
  // `ring`: the layout of the ring, of which the shapes are never larger.
  BatchReceiver(BatchShapes shapes, const ring::BatchLayout& ring, uint64_t slots);

  ReceivedBatch receive(const ring::ReadyBatch& batch);
  // Whether tensors like this are copied: integers, except images.
  static bool is_copied(const TensorSpec& spec);
  // The memory of all copies, to be page-locked. Empty if nothing is copied.
  std::span<std::byte> memory() const { return {memory_.get(), slots_ * slot_bytes_}; }

 private:
  static constexpr std::align_val_t kPage{4096};
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kPage); }
  };

  const BatchShapes shapes_;
  const uint64_t slots_;
  const size_t slot_bytes_;  // of the copies of one batch
  const std::unique_ptr<std::byte, Free> memory_;
  uint64_t received_ = 0;
};

}  // namespace stoker::feed
