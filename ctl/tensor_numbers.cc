#include "ctl/tensor_numbers.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "shared/base/half_float.h"

namespace stoker::ctl {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

// The upper half of a binary32.
double of_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

template <typename T, typename Convert>
std::vector<double> convert(std::span<const std::byte> bytes, Convert&& convert_one) {
  std::vector<double> numbers(bytes.size() / sizeof(T));
  for (size_t i = 0; i < numbers.size(); ++i) {
    T value{};
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    numbers[i] = convert_one(value);
  }
  return numbers;
}

template <typename T>
std::vector<double> convert(std::span<const std::byte> bytes) {
  return convert<T>(bytes, [](T value) { return static_cast<double>(value); });
}

}  // namespace

std::vector<double> to_doubles(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kU8:
    case DType::kBool:
      return convert<uint8_t>(bytes);
    case DType::kI8:
      return convert<int8_t>(bytes);
    case DType::kU16:
      return convert<uint16_t>(bytes);
    case DType::kI16:
      return convert<int16_t>(bytes);
    case DType::kI32:
      return convert<int32_t>(bytes);
    case DType::kI64:
      return convert<int64_t>(bytes);
    case DType::kF16:
      return convert<uint16_t>(bytes, half_to_float);
    case DType::kBF16:
      return convert<uint16_t>(bytes, of_bfloat16);
    case DType::kF32:
      return convert<float>(bytes);
    case DType::kF64:
      return convert<double>(bytes);
  }
  return {};
}

}  // namespace stoker::ctl
