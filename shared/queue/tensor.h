// Tensor: dtype, shape and bytes of one component of a queue's elements.
//
// Values of up to 32 bytes are stored in the object, so that scalars need no allocation. Larger
// ones are reference counted: a copy shares the bytes, which therefore never change once a second
// reference exists.
//
// Threads:  a value. Copies in several threads may read the same bytes.
// Owner:    the last copy frees the bytes; from_buffer() leaves that to the buffer's deleter.
// Errors:   kInvalidArgument: a negative extent, a size that overflows or exceeds that of the buffer;
//           kOutOfMemory, or std::bad_alloc from functions that return a tensor.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <boost/container/small_vector.hpp>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"

namespace stoker::queue {

inline constexpr size_t kMaxRank = 8;
inline constexpr int64_t kUnknownExtent = -1;  // of a dimension that elements may differ in

// Extents, outermost first; no dimension for a scalar. At most kMaxRank of them (make() checks
// that), and kUnknownExtent only in the declaration of a PaddingFIFOQueue.
class Shape {
 public:
  Shape() {}
  Shape(const Shape& other) { *this = other; }
  Shape& operator=(const Shape& other) {
    rank_ = other.rank_;
    for (size_t i = 0; i < rank_; ++i) extents_[i] = other.extents_[i];
    return *this;
  }
  Shape(std::initializer_list<int64_t> extents)
      : Shape(std::span<const int64_t>(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const int64_t> extents) : rank_(static_cast<uint32_t>(extents.size())) {
    assert(extents.size() <= kMaxRank);
    for (size_t i = 0; i < extents.size(); ++i) extents_[i] = extents[i];
  }

  static Result<Shape> make(std::span<const int64_t> extents);  // kInvalidArgument

  size_t rank() const { return rank_; }
  int64_t operator[](size_t i) const { return extents_[i]; }
  int64_t& operator[](size_t i) { return extents_[i]; }
  std::span<const int64_t> extents() const { return {extents_.data(), rank_}; }
  bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (size_t i = 0; i < rank_; ++i)
      if (extents_[i] != other.extents_[i]) return false;
    return true;
  }
  bool fully_defined() const;
  // Equal, where kUnknownExtent equals every extent.
  bool compatible_with(const Shape& other) const;
  Shape prepended(int64_t extent) const;  // [extent] + this; rank() < kMaxRank
  Shape without_first() const;            // rank() > 0

 private:
  uint32_t rank_ = 0;
  std::array<int64_t, kMaxRank> extents_;  // the first rank_ of them
};

std::string to_string(const Shape& shape);  // "[2, ?]"; "[]" for a scalar

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<uint8_t> : std::integral_constant<DType, DType::kU8> {};
template <>
struct DTypeOf<uint16_t> : std::integral_constant<DType, DType::kU16> {};
template <>
struct DTypeOf<int8_t> : std::integral_constant<DType, DType::kI8> {};
template <>
struct DTypeOf<int16_t> : std::integral_constant<DType, DType::kI16> {};
template <>
struct DTypeOf<int32_t> : std::integral_constant<DType, DType::kI32> {};
template <>
struct DTypeOf<int64_t> : std::integral_constant<DType, DType::kI64> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::kF32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::kF64> {};
template <>
struct DTypeOf<bool> : std::integral_constant<DType, DType::kBool> {};

class Tensor {
 public:
  static constexpr size_t kInlineBytes = 32;

  Tensor() : shape_({0}) {}  // U8 [0]: no bytes
  Tensor(const Tensor& other)
      : buffer_(other.buffer_), bytes_(other.bytes_), dtype_(other.dtype_), shape_(other.shape_) {
    copy_inline(other);
  }
  Tensor(Tensor&& other) noexcept
      : buffer_(std::move(other.buffer_)),
        bytes_(other.bytes_),
        dtype_(other.dtype_),
        shape_(other.shape_) {
    copy_inline(other);
  }
  Tensor& operator=(const Tensor& other) {
    if (this != &other) *this = Tensor(other);
    return *this;
  }
  Tensor& operator=(Tensor&& other) noexcept {
    buffer_ = std::move(other.buffer_);
    bytes_ = other.bytes_;
    dtype_ = other.dtype_;
    shape_ = other.shape_;
    copy_inline(other);
    return *this;
  }
  template <typename T>
  static Tensor scalar(T value) {
    Tensor tensor;
    tensor.dtype_ = DTypeOf<T>::value;
    tensor.bytes_ = sizeof(T);
    tensor.shape_ = Shape();
    std::memcpy(tensor.inline_.data(), &value, sizeof(T));
    return tensor;
  }
  // A vector of the values, copied.
  template <typename T>
  static Tensor vector(std::span<const T> values) {
    Result<Tensor> tensor =
        allocate(DTypeOf<T>::value, Shape({static_cast<int64_t>(values.size())}));
    if (!tensor.ok()) throw std::bad_alloc();
    if (!values.empty())
      std::memcpy(tensor->mutable_data(), values.data(), values.size() * sizeof(T));
    return *std::move(tensor);
  }
  static Tensor text(std::string_view bytes) {  // U8 [length]
    return vector(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
  }
  // Bytes are not initialized; to be written through mutable_data().
  static Result<Tensor> allocate(DType dtype, const Shape& shape);
  // Uses `buffer` without a copy. Its first bytes are the tensor's.
  static Result<Tensor> from_buffer(DType dtype, const Shape& shape,
                                    std::shared_ptr<const std::byte> buffer, size_t buffer_bytes);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  size_t rank() const { return shape_.rank(); }
  size_t bytes() const { return bytes_; }
  const std::byte* data() const { return buffer_ ? buffer_.get() : inline_.data(); }
  // Only of a tensor from allocate() that was not copied since.
  std::byte* mutable_data() {
    assert(buffer_.use_count() <= 1 && "the bytes are shared");
    return const_cast<std::byte*>(data());
  }
  // The value of a scalar, or the first one, of type T.
  template <typename T>
  T value() const {
    assert(dtype_ == DTypeOf<T>::value && bytes_ >= sizeof(T));
    T result;
    std::memcpy(&result, data(), sizeof(T));
    return result;
  }
  std::string to_text() const { return std::string(reinterpret_cast<const char*>(data()), bytes_); }
  // Element `index` of the outermost dimension. Shares the bytes if they exceed kInlineBytes.
  Tensor slice(int64_t index) const;
  // Elements from `begin` on of the outermost dimension; like slice().
  Tensor remainder(int64_t begin) const;

 private:
  Tensor part(int64_t begin, const Shape& shape, size_t bytes) const;

  void copy_inline(const Tensor& other) {
    if (buffer_) return;
    constexpr size_t kScalarBytes = 8;
    if (bytes_ > kScalarBytes)
      inline_ = other.inline_;
    else
      std::memcpy(inline_.data(), other.inline_.data(), kScalarBytes);
  }

  // A move of a scalar touches the first 80 bytes: fewer cache lines for a queue to hand over.
  std::shared_ptr<const std::byte> buffer_;  // null: the bytes are in inline_
  size_t bytes_ = 0;
  std::array<std::byte, kInlineBytes> inline_;
  DType dtype_ = DType::kU8;
  Shape shape_;
};

// One element of a queue, or a batch of elements: a tensor for each component, in the order of the
// queue's components. A batch's tensors have the number of elements as their first extent.
using Tuple = boost::container::small_vector<Tensor, 2>;

// Bytes of a tensor; kInvalidArgument if an extent is negative or the size overflows.
Result<size_t> tensor_bytes(DType dtype, const Shape& shape);

// Copies `source` to the start of each dimension of an array of shape `padded`, whose other bytes
// are unchanged. No extent of `source` is larger.
void copy_padded(const Tensor& source, std::byte* destination, const Shape& padded);

}  // namespace stoker::queue
