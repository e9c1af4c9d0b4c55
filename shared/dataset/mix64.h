// mix64: the finaliser of SplitMix64: a bijection of 64-bit numbers in which every input bit moves
// about half of the output bits. The order of samples and the synthetic samples are made of it: it
// never changes.
#pragma once

#include <cstdint>

namespace stoker::dataset {

inline constexpr uint64_t kGolden64 = 0x9e3779b97f4a7c15ull;  // 2^64 / golden ratio; odd

inline constexpr uint64_t kMix64First = 0xbf58476d1ce4e5b9ull;
inline constexpr uint64_t kMix64Second = 0x94d049bb133111ebull;

constexpr uint64_t mix64(uint64_t value) {
  value = (value ^ (value >> 30)) * kMix64First;
  value = (value ^ (value >> 27)) * kMix64Second;
  return value ^ (value >> 31);
}

}  // namespace stoker::dataset
