// permuted: a pseudo-random permutation of [0, size) that is computed, not stored: one place costs
// the same whatever the size and wherever it is.
//
// A small Feistel network permutes the next power of four; a value outside is put through again
// until it falls inside (cycle walking), which keeps it a permutation and takes fewer than four
// turns on average.
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

// A seed for the number-th of the things that `seed` decides. (seed 1, number 2) and (seed 2,
// number 1) have nothing in common.
uint64_t derived_seed(uint64_t seed, uint64_t number);

RoundKeys round_keys(uint64_t derived);

// place < size <= 2^62.
uint64_t permuted(uint64_t index, uint64_t size, const RoundKeys& keys);
// Each of `indices` becomes what permuted() makes of it; several at a time cost a fraction of one by
// one, for the multiplications of one do not wait for those of another.
void permute(std::span<uint64_t> indices, uint64_t size, const RoundKeys& keys);

}  // namespace stoker::data::order
