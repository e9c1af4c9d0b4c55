// BatchLayout: offsets of the tensors of a batch in a ring slot. Batch-major; each tensor starts on
// a 64-byte boundary.
//
// Threads:  an immutable value.
// Errors:   none. If the sizes overflow, slot_bytes() is SIZE_MAX and ShmRing::create() rejects the
//           layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/tensor_spec.h"

namespace stoker::ring {

inline constexpr size_t kTensorAlignment = 64;
// The size rounded up to kTensorAlignment; must not overflow.
constexpr size_t align_tensor(size_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

class BatchLayout {
 public:
  BatchLayout(std::vector<TensorSpec> sample, uint64_t batch);

  const std::vector<TensorSpec>& sample() const { return sample_; }  // without the batch dimension
  uint64_t batch() const { return batch_; }
  size_t slot_bytes() const { return slot_bytes_; }
  size_t offset(size_t tensor) const { return offsets_[tensor]; }
  // The bytes of row `row` of tensor `tensor` within `slot`.
  std::span<std::byte> row(std::span<std::byte> slot, size_t tensor, uint64_t row) const {
    return rows(slot, tensor, row, 1);
  }
  // The bytes of `count` rows starting at row `first`.
  std::span<std::byte> rows(std::span<std::byte> slot, size_t tensor, uint64_t first,
                            uint64_t count) const;
  std::span<const std::byte> tensor_bytes(std::span<const std::byte> slot, size_t tensor) const;

 private:
  std::vector<TensorSpec> sample_;
  uint64_t batch_;
  std::vector<size_t> offsets_;
  size_t slot_bytes_ = 0;
};

}  // namespace stoker::ring
