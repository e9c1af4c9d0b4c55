// packed bytes: what gzip and deflate make of a text, for tests of what unpacks them.
#pragma once

#include <cstdint>
#include <string>

namespace stoker::test {

// A number as IDX and PNG files hold it.
inline std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string gzip(const std::string& content);     // a whole file
std::string deflate(const std::string& content);  // the bare stream, as zip archives hold it
uint32_t crc32_of(const std::string& content);

}  // namespace stoker::test
