// Hashes of bytes: SHA-256 and CRC-32C.
//
// Threads: one object per thread; pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace stoker {

// SHA-256 of a stream of bytes (OpenSSL's libcrypto, which uses the processor's SHA instructions).
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  std::string finish_hex();  // 64 lower-case digits; the object is then spent

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::string_view text);

// crc32c: the checksum of TFRecord frames (Castagnoli polynomial), with the processor's instruction
// where it has one.
//
// Threads: pure functions.

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
