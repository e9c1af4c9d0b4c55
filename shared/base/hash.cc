#include "shared/base/hash.h"

#include <algorithm>
#include <array>
#include <cassert>

#include <isa-l/crc.h>
#include <openssl/evp.h>

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

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  constexpr size_t kMaxPiece = size_t{1} << 30;  // ISA-L takes the length as an int
  uint32_t crc = ~before;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kMaxPiece));
    // The parameter is not const, but the bytes are only read.
    auto* const data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(piece.data()));
    crc = ::crc32_iscsi(data, static_cast<int>(piece.size()), crc);
    bytes = bytes.subspan(piece.size());
  }
  return ~crc;
}

uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

}  // namespace stoker
