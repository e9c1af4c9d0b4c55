#include "shared/dataset/npy_numbers.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <type_traits>

namespace stoker::dataset {
namespace {

struct Half {
  uint16_t bits;
};

template <typename Number>
float as_float(Number number) {
  if constexpr (std::is_same_v<Number, Half>) {
    return half_to_float(number.bits);
  } else if constexpr (std::is_same_v<Number, double>) {
    constexpr double kMaxCount = std::numeric_limits<float>::max();
    // Beyond it a conversion is not defined; halfway to the next power it would still round down.
    constexpr double kRoundsDown = kMaxCount + 0x1p102;
    if (number > kMaxCount)
      return number < kRoundsDown ? std::numeric_limits<float>::max()
                                  : std::numeric_limits<float>::infinity();
    if (number < -kMaxCount)
      return number > -kRoundsDown ? -std::numeric_limits<float>::max()
                                   : -std::numeric_limits<float>::infinity();
    return static_cast<float>(number);
  } else {
    return static_cast<float>(number);
  }
}

template <typename Number>
void convert(std::span<const std::byte> from, std::span<std::byte> to) {
  const size_t count = to.size() / sizeof(float);
  for (size_t i = 0; i < count; ++i) {
    Number number;
    std::memcpy(&number, from.data() + i * sizeof(Number), sizeof(Number));
    const float value = as_float(number);
    std::memcpy(to.data() + i * sizeof(float), &value, sizeof value);
  }
}

template <typename Number>
int64_t label_of(std::span<const std::byte> from) {
  Number number;
  std::memcpy(&number, from.data(), sizeof number);
  constexpr auto kMaxCount = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (number > Number{0} && static_cast<uint64_t>(number) > kMaxCount) return -1;
  return static_cast<int64_t>(number);
}

// Calls `with` with a value of the type.
template <typename With>
auto with_type(const NpyType& type, const With& with) {
  const bool is_signed = type.kind == 'i';
  switch (type.bytes) {
    case 1:
      return is_signed ? with(int8_t{}) : with(uint8_t{});
    case 2:
      return is_signed ? with(int16_t{}) : with(uint16_t{});
    case 4:
      return is_signed ? with(int32_t{}) : with(uint32_t{});
    default:
      return is_signed ? with(int64_t{}) : with(uint64_t{});
  }
}

}  // namespace

void npy_to_floats(const NpyType& type, std::span<const std::byte> from, std::span<std::byte> to) {
  assert(from.size() / type.bytes == to.size() / sizeof(float));
  if (type == NpyType{'f', 2}) return convert<Half>(from, to);
  if (type == NpyType{'f', 4}) return convert<float>(from, to);
  if (type == NpyType{'f', 8}) return convert<double>(from, to);
  with_type(type, [&](auto number) { convert<decltype(number)>(from, to); });
}

int64_t npy_to_class(const NpyType& type, std::span<const std::byte> from) {
  return std::max<int64_t>(npy_to_label(type, from), -1);
}

int64_t npy_to_label(const NpyType& type, std::span<const std::byte> from) {
  assert(type.is_integer() && from.size() >= type.bytes);
  return with_type(type, [&](auto number) { return label_of<decltype(number)>(from); });
}

}  // namespace stoker::dataset
