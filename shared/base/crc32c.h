// crc32c: the checksum of TFRecord frames (Castagnoli polynomial), with the processor's instruction
// where it has one.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace stoker {

// Of `bytes`, or of what has the checksum `before` and then `bytes`.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
inline uint32_t crc32c(std::string_view bytes) { return crc32c(std::as_bytes(std::span(bytes))); }
// The same from tables, on any processor.
uint32_t crc32c_by_tables(std::span<const std::byte> bytes, uint32_t before = 0);

// As TFRecord stores it: rotated and shifted, so that a checksum over bytes that hold checksums
// stays useful.
uint32_t masked_crc32c(std::span<const std::byte> bytes);
inline uint32_t masked_crc32c(std::string_view bytes) {
  return masked_crc32c(std::as_bytes(std::span(bytes)));
}

}  // namespace stoker
