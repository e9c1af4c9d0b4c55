#include "shared/dataset/permutation.h"

#include <bit>
#include <cassert>

#include "shared/dataset/mix64.h"

namespace stoker::dataset {
namespace {

// Every constant and the number of rounds decide the order of samples in every run there is: never
// change them. The golden values in sample_plan_test.cc hold them.

// A permutation of [0, 2^(2 * half_bits)): each round replaces one half by itself XOR a function of
// the other half.
uint64_t feistel(uint64_t value, uint32_t half_bits, const RoundKeys& keys) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits;
  uint64_t right = value & mask;
  for (const uint64_t key : keys) {
    const uint64_t next = left ^ (mix64(right ^ key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

uint64_t derived_seed(uint64_t seed, uint64_t number) {
  // The seed is mixed before the number joins it, so that the two are not added up.
  return mix64(mix64(seed + kGolden64) + (number + 1) * kGolden64);
}

RoundKeys round_keys(uint64_t derived) {
  RoundKeys keys;
  for (size_t round = 0; round < keys.size(); ++round)
    keys[round] = mix64(derived + (round + 1) * kGolden64);
  return keys;
}

uint64_t permuted(uint64_t place, uint64_t size, const RoundKeys& keys) {
  assert(place < size);
  if (size == 1) return 0;
  const uint32_t half_bits = (static_cast<uint32_t>(std::bit_width(size - 1)) + 1) / 2;
  uint64_t value = place;
  do value = feistel(value, half_bits, keys);
  while (value >= size);
  return value;
}

}  // namespace stoker::dataset
