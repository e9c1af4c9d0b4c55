// mix64: the finaliser of SplitMix64: a bijection of 64-bit numbers in which every input bit moves
// about half of the output bits. The order of samples and the synthetic samples are made of it: it
// never changes.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace stoker::data {

inline constexpr uint64_t kGolden64 = 0x9e3779b97f4a7c15ull;  // 2^64 / golden ratio; odd

inline constexpr uint64_t kMix64First = 0xbf58476d1ce4e5b9ull;
inline constexpr uint64_t kMix64Second = 0x94d049bb133111ebull;

constexpr uint64_t mix64(uint64_t value) {
  value = (value ^ (value >> 30)) * kMix64First;
  value = (value ^ (value >> 27)) * kMix64Second;
  return value ^ (value >> 31);
}

// What random choices while reading one sample depend on: nothing else may.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t sample = 0;
};

// CounterRng: the random numbers of one sample (with kMix: of one ticket) for one purpose: a function of
// (seed, epoch, sample, purpose, how many were drawn before) and of nothing else, so that no
// thread, order or restart changes them, and a new purpose changes none of the others.
//
// What is drawn decides what samples are, in every run there is: the numbers never change.
//
// Threads: a value.
enum class RandomStream : uint64_t { kCrop = 1, kPad = 2, kFlip = 3, kJitter = 4, kMix = 5 };

class CounterRng {
 public:
  // Each number is mixed before the next joins it, so that no two keys have a stream in common.
  CounterRng(const RandomKey& key, RandomStream purpose) {
    for (const uint64_t part : {key.seed, key.epoch, key.sample, static_cast<uint64_t>(purpose)})
      stream_ = mix64(stream_ + (part + 1) * kGolden64);
  }

  uint64_t next() { return mix64(stream_ + ++drawn_ * kGolden64); }
  // From [0, 1): 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double from, double to) { return from + (to - from) * uniform(); }
  // From [0, limit); limit at least 1. Favours none by more than limit / 2^32.
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>((next() >> 32) * limit >> 32); }

 private:
  uint64_t stream_ = 0;
  uint64_t drawn_ = 0;
};

}  // namespace stoker::data
