// DType and TensorSpec: name, element type and shape of a tensor, without LibTorch. Used by the
// component table of the ring, the samples of a dataset and the files of a checkpoint.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stoker {

// The values are stored in shared memory (ring_layout.h): never renumber.
enum class DType : uint32_t {
  kU8 = 1,
  kU16 = 2,
  kI32 = 3,
  kI64 = 4,
  kF16 = 5,
  kBF16 = 6,
  kF32 = 7,
  kF64 = 8,
  kBool = 9,
  kI8 = 10,
  kI16 = 11
};

size_t dtype_bytes(DType dtype);
std::string_view to_string(DType dtype);  // as in safetensors: "F32", "U8", "BOOL", …
std::optional<DType> parse_dtype(std::string_view name);

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // outermost first; empty for a scalar

  int64_t elements() const;  // product of the shape; 1 for a scalar
  size_t bytes() const { return static_cast<size_t>(elements()) * dtype_bytes(dtype); }
  bool operator==(const TensorSpec&) const = default;
};

std::string to_string(const TensorSpec& spec);  // "fc.weight F32 [10, 64]"

// Converts IEEE 754 binary16 to binary32 exactly.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t rest = half & 0x7fffu;
  // After the shift the exponent is 112 too small; multiplying by 2^112 corrects it, also for
  // subnormals.
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;
  const uint32_t bits =
      rest >= 0x7c00u ? 0x7f800000u | (rest & 0x3ffu) << 13 : std::bit_cast<uint32_t>(scaled);
  return std::bit_cast<float>(sign | bits);
}
// bfloat16 is the upper half of a binary32.
inline float bfloat16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

}  // namespace stoker
