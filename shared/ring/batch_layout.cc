#include "shared/ring/batch_layout.h"

#include <cassert>
#include <limits>
#include <utility>

namespace stoker::ring {
namespace {

constexpr size_t kOverflow = std::numeric_limits<size_t>::max();

// Bytes of one row, or kOverflow. Shapes come from configurations and shared memory, so the
// arithmetic must not overflow.
size_t row_bytes_checked(const TensorSpec& spec) {
  size_t bytes = dtype_bytes(spec.dtype);
  for (const int64_t extent : spec.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes))
      return kOverflow;
  }
  return bytes;
}

}  // namespace

BatchLayout::BatchLayout(std::vector<TensorSpec> sample, uint64_t batch)
    : sample_(std::move(sample)), batch_(batch) {
  offsets_.reserve(sample_.size());
  size_t end = 0;
  for (const auto& spec : sample_) {
    offsets_.push_back(end);
    const size_t row = row_bytes_checked(spec);
    size_t total = 0;
    if (row == kOverflow || __builtin_mul_overflow(row, batch_, &total) ||
        __builtin_add_overflow(end, total, &end) || end > kOverflow - kTensorAlignment) {
      end = kOverflow;
      break;
    }
    end = align_tensor(end);
  }
  offsets_.resize(sample_.size(), end);
  slot_bytes_ = end;
}

std::span<std::byte> BatchLayout::rows(std::span<std::byte> slot, size_t tensor, uint64_t first,
                                       uint64_t count) const {
  assert(tensor < sample_.size() && first < batch_ && count <= batch_ - first &&
         slot.size() >= slot_bytes_);
  const size_t bytes = sample_[tensor].bytes();
  return slot.subspan(offsets_[tensor] + first * bytes, count * bytes);
}

std::span<const std::byte> BatchLayout::tensor_bytes(std::span<const std::byte> slot,
                                                     size_t tensor) const {
  assert(tensor < sample_.size() && slot.size() >= slot_bytes_);
  return slot.subspan(offsets_[tensor], sample_[tensor].bytes() * batch_);
}

}  // namespace stoker::ring
