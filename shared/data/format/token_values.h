// token values: little-endian 16-bit or 32-bit token ids, converted to the elements of a tensor.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace stoker::data::format {

// Expands the uint16 values in the second half of `bytes` to int32 values that fill `bytes`.
void widen_tokens_in_place(std::span<std::byte> bytes);

// The first 32-bit token that is no int32.
struct LargeToken {
  size_t index = 0;
  uint32_t token = 0;
};
std::optional<LargeToken> find_large_token(std::span<const std::byte> tokens);

}  // namespace stoker::data::format
