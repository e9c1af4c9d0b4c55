#include "shared/queue/tensor.h"

#include <algorithm>
#include <new>
#include <string_view>

namespace stoker::queue {
namespace {

constexpr std::align_val_t kAlignment{64};  // a cache line, and enough for any vector instruction

std::shared_ptr<std::byte> allocate_bytes(size_t bytes) {
  void* const memory = ::operator new(bytes, kAlignment, std::nothrow);
  if (memory == nullptr) return nullptr;
  try {
    return {static_cast<std::byte*>(memory),
            [](std::byte* begin) { ::operator delete(begin, kAlignment); }};
  } catch (const std::bad_alloc&) {  // of the reference count; the deleter has run
    return nullptr;
  }
}

// Copies dimensions `dimension` to `last`, whose items have `item_bytes`, to an array of shape
// `padded`.
void copy_dimensions(const std::byte*& source, const Shape& shape, std::byte* destination,
                     const Shape& padded, size_t dimension, size_t last, size_t item_bytes) {
  const auto extent = static_cast<size_t>(shape[dimension]);
  if (dimension == last) {
    std::memcpy(destination, source, extent * item_bytes);
    source += extent * item_bytes;
    return;
  }
  size_t stride = item_bytes;
  for (size_t i = dimension + 1; i <= last; ++i) stride *= static_cast<size_t>(padded[i]);
  for (size_t index = 0; index < extent; ++index, destination += stride)
    copy_dimensions(source, shape, destination, padded, dimension + 1, last, item_bytes);
}

}  // namespace

Result<Shape> Shape::make(std::span<const int64_t> extents) {
  if (extents.size() > kMaxRank)
    return Status(StatusCode::kInvalidArgument, "a shape of " + std::to_string(extents.size()) +
                                                    " dimensions; at most " +
                                                    std::to_string(kMaxRank) + " are possible");
  return Shape(extents);
}

bool Shape::fully_defined() const {
  return std::ranges::find(extents(), kUnknownExtent) == extents().end();
}

bool Shape::compatible_with(const Shape& other) const {
  if (rank_ != other.rank_) return false;
  for (size_t i = 0; i < rank_; ++i)
    if (extents_[i] != other.extents_[i] && extents_[i] != kUnknownExtent &&
        other.extents_[i] != kUnknownExtent)
      return false;
  return true;
}

Shape Shape::prepended(int64_t extent) const {
  assert(rank_ < kMaxRank);
  Shape shape;
  shape.rank_ = rank_ + 1;
  shape.extents_[0] = extent;
  for (size_t i = 0; i < rank_; ++i) shape.extents_[i + 1] = extents_[i];
  return shape;
}

Shape Shape::without_first() const {
  assert(rank_ > 0);
  return Shape(extents().subspan(1));
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] == kUnknownExtent ? "?" : std::to_string(shape[i]);
  }
  return text + "]";
}

Result<size_t> tensor_bytes(DType dtype, const Shape& shape) {
  size_t bytes = dtype_bytes(dtype);
  for (const int64_t extent : shape.extents()) {
    if (extent < 0)
      return Status(StatusCode::kInvalidArgument,
                    "shape " + to_string(shape) + " of a tensor has a negative extent");
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes))
      return Status(StatusCode::kInvalidArgument,
                    "shape " + to_string(shape) + " exceeds the address space");
  }
  return bytes;
}

Result<Tensor> Tensor::allocate(DType dtype, const Shape& shape) {
  Tensor tensor;
  STOKER_ASSIGN_OR_RETURN(tensor.bytes_, tensor_bytes(dtype, shape));
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  if (tensor.bytes_ > kInlineBytes) {
    tensor.buffer_ = allocate_bytes(tensor.bytes_);
    if (tensor.buffer_ == nullptr)
      return Status(StatusCode::kOutOfMemory,
                    "no memory for " + std::to_string(tensor.bytes_) + " bytes of a tensor");
  }
  return tensor;
}

Result<Tensor> Tensor::from_buffer(DType dtype, const Shape& shape,
                                   std::shared_ptr<const std::byte> buffer, size_t buffer_bytes) {
  Tensor tensor;
  STOKER_ASSIGN_OR_RETURN(tensor.bytes_, tensor_bytes(dtype, shape));
  if (tensor.bytes_ > buffer_bytes)
    return Status(StatusCode::kInvalidArgument,
                  "a buffer of " + std::to_string(buffer_bytes) + " bytes is too small for " +
                      std::string(to_string(dtype)) + " " + to_string(shape));
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  tensor.buffer_ = std::move(buffer);
  return tensor;
}

Tensor Tensor::slice(int64_t index) const {
  assert(rank() > 0 && index >= 0 && index < shape_[0]);
  return part(index, shape_.without_first(), bytes_ / static_cast<size_t>(shape_[0]));
}

Tensor Tensor::remainder(int64_t begin) const {
  assert(rank() > 0 && begin >= 0 && begin < shape_[0]);
  Shape shape = shape_;
  shape[0] -= begin;
  return part(begin, shape,
              bytes_ / static_cast<size_t>(shape_[0]) * static_cast<size_t>(shape[0]));
}

Tensor Tensor::part(int64_t begin, const Shape& shape, size_t bytes) const {
  Tensor result;
  result.dtype_ = dtype_;
  result.shape_ = shape;
  result.bytes_ = bytes;
  const size_t offset = bytes_ / static_cast<size_t>(shape_[0]) * static_cast<size_t>(begin);
  if (bytes > kInlineBytes)
    result.buffer_ = std::shared_ptr<const std::byte>(buffer_, data() + offset);
  else
    std::memcpy(result.inline_.data(), data() + offset, bytes);
  return result;
}

void copy_padded(const Tensor& source, std::byte* destination, const Shape& padded) {
  if (source.bytes() == 0) return;
  const std::byte* bytes = source.data();
  const Shape& shape = source.shape();
  if (shape == padded) {
    std::memcpy(destination, bytes, source.bytes());
    return;
  }
  // Equal inner dimensions are contiguous in both.
  size_t last = shape.rank() - 1, item_bytes = dtype_bytes(source.dtype());
  for (; shape[last] == padded[last]; --last) item_bytes *= static_cast<size_t>(shape[last]);
  copy_dimensions(bytes, shape, destination, padded, 0, last, item_bytes);
}

}  // namespace stoker::queue
