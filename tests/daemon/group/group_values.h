// Values that the ranks of group_test_program sum, and their ordered sum without LibTorch.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/hash.h"

namespace stoker::test {

inline constexpr const char* kSecret = "the secret of the group";
inline constexpr size_t kSumSizes[] = {1, 3, 7, 1000, 300'001};

// Of different magnitudes, so that the order of additions changes the sum.
inline float value_of(int rank, size_t index) {
  uint64_t bits = (static_cast<uint64_t>(rank) << 32 | index) * 0x9e3779b97f4a7c15;
  bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9;
  bits ^= bits >> 32;
  const auto mantissa = static_cast<float>(bits & 0xffffff) / 0x1p24F - 0.5F;
  return std::ldexp(mantissa, static_cast<int>(bits >> 40 & 15));
}

// Sum of the ranks begin … end - 1.
inline float sum_of(int begin, int end, size_t index) {
  if (end - begin == 1) return value_of(begin, index);
  const int middle = begin + (end - begin) / 2;
  return sum_of(begin, middle, index) + sum_of(middle, end, index);
}

// Where the part of each rank ends, of 1000 values; of more than two ranks, rank 1 has none.
inline std::vector<int64_t> part_ends(int world_size) {
  std::vector<int64_t> ends;
  for (int rank = 0; rank < world_size; ++rank)
    ends.push_back(rank + 1 == world_size ? 1000 : 100 + 50 * (rank / 2));
  return ends;
}

inline std::string digest(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return sha256_hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace stoker::test
