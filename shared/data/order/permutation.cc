#include "shared/data/order/permutation.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "shared/data/counter_rng.h"

namespace stoker::data::order {
namespace {

// The constants and the number of rounds determine the order of samples of every run: never change
// them. Golden values in sample_plan_test.cc verify them.

// One round: replaces one half by itself XOR a function of the other half.
void feistel_round(uint64_t& left, uint64_t& right, uint64_t key, uint64_t mask) {
  const uint64_t next = left ^ (mix64(right ^ key) & mask);
  left = right;
  right = next;
}

// A permutation of [0, 2^(2 * half_bits)).
uint64_t feistel(uint64_t value, uint32_t half_bits, const RoundKeys& keys) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits;
  uint64_t right = value & mask;
  for (const uint64_t key : keys) feistel_round(left, right, key, mask);
  return left << half_bits | right;
}

uint32_t half_bits_of(uint64_t size) {
  return (static_cast<uint32_t>(std::bit_width(size - 1)) + 1) / 2;
}

constexpr size_t kLanes = 32;
// Number of values processed together: their halves fit into registers, and their multiplications
// do not depend on each other.
constexpr size_t kInWork = 6;

// Applies feistel() to each of kInWork values.
void feistel_block(uint64_t* values, uint32_t half_bits, const RoundKeys& keys) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left[kInWork], right[kInWork];
#pragma GCC unroll 6
  for (size_t i = 0; i < kInWork; ++i) {
    left[i] = values[i] >> half_bits;
    right[i] = values[i] & mask;
  }
  for (const uint64_t key : keys) {
#pragma GCC unroll 6
    for (size_t i = 0; i < kInWork; ++i) feistel_round(left[i], right[i], key, mask);
  }
#pragma GCC unroll 6
  for (size_t i = 0; i < kInWork; ++i) values[i] = left[i] << half_bits | right[i];
}

#if defined(__x86_64__)
// Processors with AVX-512 multiply eight 64-bit integers at a time.
#define STOKER_EIGHTS __attribute__((target("avx512f,avx512dq")))
using Eight = uint64_t __attribute__((vector_size(64)));

// Applies feistel() to each of 8 * kEights values.
template <size_t kEights>
STOKER_EIGHTS void feistel_eights(uint64_t* values, uint32_t half_bits, const RoundKeys& keys) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  Eight left[kEights], right[kEights];
#pragma GCC unroll 4
  for (size_t i = 0; i < kEights; ++i) {
    Eight value;
    std::memcpy(&value, values + i * 8, sizeof value);
    left[i] = value >> half_bits;
    right[i] = value & mask;
  }
  for (const uint64_t key : keys) {
#pragma GCC unroll 4
    for (size_t i = 0; i < kEights; ++i) {
      Eight mixed = right[i] ^ key;  // as mix64()
      mixed = (mixed ^ (mixed >> 30)) * kMix64First;
      mixed = (mixed ^ (mixed >> 27)) * kMix64Second;
      mixed = (mixed ^ (mixed >> 31)) & mask;
      const Eight next = left[i] ^ mixed;
      left[i] = right[i];
      right[i] = next;
    }
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < kEights; ++i) {
    const Eight value = left[i] << half_bits | right[i];
    std::memcpy(values + i * 8, &value, sizeof value);
  }
}

bool has_eights() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
  return has;
}
#else
template <size_t>
void feistel_eights(uint64_t*, uint32_t, const RoundKeys&) {}
constexpr bool has_eights() { return false; }
#endif

// Processes the first `count` of kLanes values; the values after them are unspecified.
void feistel_each(std::array<uint64_t, kLanes>& lanes, size_t count, uint32_t half_bits,
                  const RoundKeys& keys) {
  size_t i = 0;
  if (has_eights()) {
    // Several vectors together, because their multiplications do not depend on each other.
    for (; i + 24 < count; i += 32) feistel_eights<4>(lanes.data() + i, half_bits, keys);
    if (i + 16 < count) return feistel_eights<3>(lanes.data() + i, half_bits, keys);
    if (i + 8 < count) return feistel_eights<2>(lanes.data() + i, half_bits, keys);
    if (i < count) feistel_eights<1>(lanes.data() + i, half_bits, keys);
    return;
  }
  const std::span<uint64_t> values = std::span(lanes).first(count);
  for (; i + kInWork <= values.size(); i += kInWork)
    feistel_block(values.data() + i, half_bits, keys);
  for (; i < values.size(); ++i) values[i] = feistel(values[i], half_bits, keys);
}

// permute() for at most kLanes indices.
void permute_lanes(std::span<uint64_t> indices, uint64_t size, const RoundKeys& keys) {
  const uint32_t half_bits = half_bits_of(size);
  std::array<uint64_t, kLanes> values{};
  std::array<uint32_t, kLanes> of;  // index in `indices` of each value
  size_t walking = indices.size();
  for (uint32_t i = 0; i < walking; ++i) {
    values[i] = indices[i];
    of[i] = i;
  }
  while (walking > 0) {
    feistel_each(values, walking, half_bits, keys);
    // Compact the values that are still outside. Branch-free, because a branch would be
    // unpredictable.
    size_t outside = 0;
    for (size_t i = 0; i < walking; ++i) {
      const uint64_t value = values[i];
      const uint32_t index = of[i];
      indices[index] = values[outside] = value;
      of[outside] = index;
      outside += value >= size ? 1 : 0;
    }
    walking = outside;
  }
}

}  // namespace

uint64_t derived_seed(uint64_t seed, uint64_t number) {
  // The seed is mixed before the number is added, so that they do not simply sum up.
  return mix64(mix64(seed + kGolden64) + (number + 1) * kGolden64);
}

RoundKeys round_keys(uint64_t derived) {
  RoundKeys keys;
  for (size_t round = 0; round < keys.size(); ++round)
    keys[round] = mix64(derived + (round + 1) * kGolden64);
  return keys;
}

uint64_t permuted(uint64_t index, uint64_t size, const RoundKeys& keys) {
  assert(index < size);
  if (size == 1) return 0;
  const uint32_t half_bits = half_bits_of(size);
  uint64_t value = index;
  do value = feistel(value, half_bits, keys);
  while (value >= size);
  return value;
}

void permute(std::span<uint64_t> indices, uint64_t size, const RoundKeys& keys) {
  if (size == 1) {
    std::ranges::fill(indices, 0);
    return;
  }
  for (; !indices.empty(); indices = indices.subspan(std::min(kLanes, indices.size())))
    permute_lanes(indices.first(std::min(kLanes, indices.size())), size, keys);
}

}  // namespace stoker::data::order
