#include "shared/base/hash.h"

#include <array>
#include <cassert>
#include <cstring>

#include <openssl/evp.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace stoker {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  [[maybe_unused]] const int ok = EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr);
  assert(ok == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

std::string Sha256::finish_hex() {
  std::array<unsigned char, 32> digest{};
  EVP_DigestFinal_ex(state_->context, digest.data(), nullptr);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish_hex();
}

namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // Castagnoli, bits reversed
constexpr size_t kStep = 8;                   // bytes per step

using Tables = std::array<std::array<uint32_t, 256>, kStep>;

// Table k: contribution of a byte that is followed by k more bytes of the step.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t value = 0; value < 256; ++value) {
    uint32_t crc = value;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ kPolynomial : crc >> 1;
    tables[0][value] = crc;
  }
  for (size_t k = 1; k < kStep; ++k)
    for (uint32_t value = 0; value < 256; ++value)
      tables[k][value] = (tables[k - 1][value] >> 8) ^ tables[0][tables[k - 1][value] & 0xFF];
  return tables;
}

constexpr Tables kTables = make_tables();

uint32_t add_byte(uint32_t crc, std::byte byte) {
  return (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<uint32_t>(byte)) & 0xFF];
}

uint64_t little_endian(const std::byte* bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kStep; ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(std::span<const std::byte> bytes,
                                                                 uint32_t before) {
  uint64_t crc = ~before;
  size_t at = 0;
  for (; at + kStep <= bytes.size(); at += kStep) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    crc = _mm_crc32_u64(crc, word);
  }
  auto rest = static_cast<uint32_t>(crc);
  for (; at < bytes.size(); ++at) rest = _mm_crc32_u8(rest, std::to_integer<uint8_t>(bytes[at]));
  return ~rest;
}
#endif

}  // namespace

uint32_t crc32c_by_tables(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  size_t at = 0;
  for (; at + kStep <= bytes.size(); at += kStep) {
    const uint64_t word = little_endian(bytes.data() + at) ^ crc;
    crc = 0;
    for (size_t i = 0; i < kStep; ++i) crc ^= kTables[kStep - 1 - i][(word >> (8 * i)) & 0xFF];
  }
  for (; at < bytes.size(); ++at) crc = add_byte(crc, bytes[at]);
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_by_instruction(bytes, before);
#endif
  return crc32c_by_tables(bytes, before);
}

uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

}  // namespace stoker
