// mix64: the finalizer of SplitMix64, a bijection of 64-bit integers in which each input bit
// changes about half of the output bits. The order of samples and the synthetic samples depend on
// it: never change it.
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

// Key of all random choices that are made while one sample is read. They must not depend on
// anything else.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t sample = 0;
};

// CounterRng: counter-based random numbers for one sample (kMix, kGenerator: one ticket) and one
// purpose. They are a function of (seed, epoch, sample, purpose, count of earlier numbers) only. So
// threads, order and restarts do not change them, and a new purpose does not affect the others.
//
// The random numbers determine the samples of every run: never change them.
//
// Threads: a value.
enum class RandomStream : uint64_t {
  kCrop = 1,
  kPad = 2,
  kFlip = 3,
  kJitter = 4,
  kMix = 5,
  kGenerator = 6,  // the seed of LibTorch's generators for a micro-batch
  kVerticalFlip = 7,
  kRotation = 8,
  kAffine = 9,
  kPerspective = 10,
  kBlur = 11,
  kGrayscale = 12,
  kInvert = 13,
  kPosterize = 14,
  kSolarize = 15,
  kSharpness = 16,
  kAutocontrast = 17,
  kEqualize = 18,
  kRandAugment = 19,
  kTrivialAugment = 20,
  kAutoAugment = 21,
  kAugMix = 22,
  kErasing = 23,
};

class CounterRng {
 public:
  // Each part is mixed before the next one is added, so that different keys have unrelated streams.
  CounterRng(const RandomKey& key, RandomStream purpose) {
    for (const uint64_t part : {key.seed, key.epoch, key.sample, static_cast<uint64_t>(purpose)})
      stream_ = mix64(stream_ + (part + 1) * kGolden64);
  }

  uint64_t next() { return mix64(stream_ + ++drawn_ * kGolden64); }
  // Uniform in [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double from, double to) { return from + (to - from) * uniform(); }
  // Uniform in [0, limit), limit >= 1. The bias is at most limit / 2^32.
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>((next() >> 32) * limit >> 32); }

 private:
  uint64_t stream_ = 0;
  uint64_t drawn_ = 0;
};

}  // namespace stoker::data
