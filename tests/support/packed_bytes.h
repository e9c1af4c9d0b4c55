// Compresses test data with gzip, deflate or zstd and encodes numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace stoker::test {

// As stored in IDX and PNG files.
inline std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// The lowest `bytes` bytes.
inline std::string little_endian(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::string gzip(const std::string& content);     // a complete gzip file
std::string deflate(const std::string& content);  // a raw deflate stream, as in zip archives
std::string zstd(const std::string& content);     // one frame with a checksum
uint32_t crc32_of(const std::string& content);

}  // namespace stoker::test
