// big_endian(): a number as IDX and PNG files hold it.
#pragma once

#include <cstdint>
#include <string>

namespace stoker::test {

inline std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

}  // namespace stoker::test
