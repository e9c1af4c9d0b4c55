// permuted: a pseudo-random permutation of [0, size) that is computed, not stored: the cost of an
// index does not depend on the size or the index.
//
// A small Feistel network permutes the next power of four. A result outside the range is permuted
// again until it is inside (cycle walking), which keeps it a permutation and takes fewer than four
// passes on average.
//
// Threads: any; no state, no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace stoker::data::order {

inline constexpr size_t kFeistelRounds = 8;
using RoundKeys = std::array<uint64_t, kFeistelRounds>;

// Derives an independent seed for item `number` of `seed`. (seed 1, number 2) and (seed 2, number
// 1) are unrelated.
uint64_t derived_seed(uint64_t seed, uint64_t number);

RoundKeys round_keys(uint64_t derived);

// index < size <= 2^62.
uint64_t permuted(uint64_t index, uint64_t size, const RoundKeys& keys);
// Replaces each index by permuted() of it. Much faster than single calls, because the
// multiplications of different indices do not depend on each other.
void permute(std::span<uint64_t> indices, uint64_t size, const RoundKeys& keys);

}  // namespace stoker::data::order
