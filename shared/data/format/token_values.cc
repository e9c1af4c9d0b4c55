#include "shared/data/format/token_values.h"

#include <cstring>

#include "shared/base/tensor_role.h"

namespace stoker::data::format {

TensorSpec token_block_spec(uint64_t tokens, uint64_t token_bytes) {
  return {.name = tensor_name(TensorRole::kTokens),
          .dtype = token_bytes == 1 ? DType::kU8 : DType::kI32,
          .shape = {static_cast<int64_t>(tokens)}};
}

void widen_tokens_in_place(std::span<std::byte> bytes, uint64_t token_bytes) {
  if (token_bytes != sizeof(uint16_t)) return;
  // Each value is read before it is overwritten.
  const std::byte* from = bytes.data() + bytes.size() / 2;
  for (size_t i = 0; i < bytes.size() / 4; ++i) {
    uint16_t token;
    std::memcpy(&token, from + 2 * i, sizeof token);
    const int32_t value = token;
    std::memcpy(bytes.data() + 4 * i, &value, sizeof value);
  }
}

std::optional<LargeToken> find_large_token(std::span<const std::byte> tokens,
                                           uint64_t token_bytes) {
  if (token_bytes < sizeof(int32_t)) return std::nullopt;
  uint32_t all = 0;  // no early exit, so that the loop is vectorized
  for (size_t i = 0; i < tokens.size() / 4; ++i) {
    uint32_t token;
    std::memcpy(&token, tokens.data() + 4 * i, sizeof token);
    all |= token;
  }
  if (all <= static_cast<uint32_t>(INT32_MAX)) return std::nullopt;
  for (size_t i = 0;; ++i) {
    uint32_t token;
    std::memcpy(&token, tokens.data() + 4 * i, sizeof token);
    if (token > static_cast<uint32_t>(INT32_MAX)) return LargeToken{.index = i, .token = token};
  }
}

}  // namespace stoker::data::format
