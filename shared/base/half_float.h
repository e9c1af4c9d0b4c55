// half_to_float: IEEE 754 binary16 as binary32, exactly.
//
// Threads: a pure function.
#pragma once

#include <bit>
#include <cstdint>

namespace stoker {

inline float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t rest = half & 0x7fffu;
  // Shifted into place the exponent is 112 too small; multiplied by 2^112 it is right, also where the
  // half is subnormal.
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;
  const uint32_t bits =
      rest >= 0x7c00u ? 0x7f800000u | (rest & 0x3ffu) << 13 : std::bit_cast<uint32_t>(scaled);
  return std::bit_cast<float>(sign | bits);
}

}  // namespace stoker
