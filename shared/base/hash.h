// hash: SHA-256 and CRC-32C.
//
// Threads:  one object per thread; pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace stoker {

// Streaming SHA-256 (OpenSSL's libcrypto, which uses the CPU's SHA instructions).
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  std::string finish_hex();  // 64 lower-case hex digits; the object must not be used afterwards

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::string_view text);

// crc32c: the checksum of TFRecord frames (Castagnoli polynomial), from ISA-L, which uses the CPU's
// carry-less multiplication.
//
// Threads:  pure functions.

// Checksum of `bytes`, or of the concatenation of data with checksum `before` and `bytes`.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
inline uint32_t crc32c(std::string_view bytes) { return crc32c(std::as_bytes(std::span(bytes))); }

// The masked form that TFRecord stores: rotated plus a constant, because a CRC over data that
// contains CRCs is weak.
uint32_t masked_crc32c(std::span<const std::byte> bytes);
inline uint32_t masked_crc32c(std::string_view bytes) {
  return masked_crc32c(std::as_bytes(std::span(bytes)));
}

}  // namespace stoker
