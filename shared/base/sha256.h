// Sha256: SHA-256 of a stream of bytes (OpenSSL's libcrypto, which uses the processor's SHA
// instructions).
//
// Threads: one object per thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace stoker {

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

}  // namespace stoker
