// token values: blocks of little-endian token ids of 1 (text), 2 or 4 bytes, converted to the elements of a
// tensor.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shared/base/tensor_spec.h"

namespace stoker::data::format {

// The tensor of a block: U8 for text, else I32.
TensorSpec token_block_spec(uint64_t tokens, uint64_t token_bytes);

// Expands the uint16 values in the second half of `bytes` to int32 values that fill `bytes`. Those of 1 or 4
// bytes fill it as they are.
void widen_tokens_in_place(std::span<std::byte> bytes, uint64_t token_bytes);

// The first token that is no int32.
struct LargeToken {
  size_t index = 0;
  uint32_t token = 0;
};
std::optional<LargeToken> find_large_token(std::span<const std::byte> tokens, uint64_t token_bytes);

}  // namespace stoker::data::format
