#include "shared/data/counter_rng.h"

#include <array>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace stoker::data {
namespace {

TEST(CounterRngTest, ReturnsSameNumbersForSameKey) {
  const RandomKey key{.seed = 5, .epoch = 6, .sample = 7};
  CounterRng first(key, RandomStream::kFlip), second(key, RandomStream::kFlip);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(first.next(), second.next());
}

// The samples of existing runs depend on these numbers, which must never change.
TEST(CounterRngTest, MatchesRecordedNumbers) {
  CounterRng zero({}, RandomStream::kCrop);
  EXPECT_EQ(zero.next(), 0xc81c5515e3584727ull);
  EXPECT_EQ(zero.next(), 0x313bc59404eea29eull);
  CounterRng other({.seed = 1, .epoch = 2, .sample = 3}, RandomStream::kJitter);
  EXPECT_EQ(other.next(), 0xe4d31cad5d82a3c6ull);
}

TEST(CounterRngTest, DependsOnEveryFieldOfKey) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 10; ++seed)
    for (uint64_t epoch = 0; epoch < 10; ++epoch)
      for (uint64_t sample = 0; sample < 10; ++sample)
        for (const RandomStream purpose :
             {RandomStream::kCrop, RandomStream::kPad, RandomStream::kFlip, RandomStream::kJitter,
              RandomStream::kMix}) {
          CounterRng rng({.seed = seed, .epoch = epoch, .sample = sample}, purpose);
          for (int i = 0; i < 3; ++i) EXPECT_TRUE(seen.insert(rng.next()).second);
        }
}

// The first numbers of adjacent samples are as uniform and independent as the numbers of one
// stream.
TEST(CounterRngTest, ReturnsUniformIndependentNumbersForAdjacentSamples) {
  constexpr uint64_t kSamples = 100000;
  std::array<uint64_t, 16> counts{};
  double product = 0, last = 0.5;
  for (uint64_t sample = 0; sample < kSamples; ++sample) {
    CounterRng rng({.seed = 1, .epoch = 0, .sample = sample}, RandomStream::kFlip);
    const double value = rng.uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    ++counts[static_cast<size_t>(value * 16)];
    product += (value - 0.5) * (last - 0.5);
    last = value;
  }
  double chi_squared = 0;
  for (const uint64_t count : counts) {
    const double off = double(count) - kSamples / 16.0;
    chi_squared += off * off / (kSamples / 16.0);
  }
  EXPECT_LT(chi_squared, 37.7);  // 15 degrees of freedom, p = 0.001
  EXPECT_LT(std::fabs(product / kSamples), 0.001);
}

TEST(CounterRngTest, ReturnsEveryNumberBelowBound) {
  CounterRng rng({}, RandomStream::kPad);
  std::array<int, 9> counts{};
  for (int i = 0; i < 90000; ++i) ++counts.at(rng.below(9));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);
  EXPECT_EQ(rng.below(1), 0u);
}

}  // namespace
}  // namespace stoker::data
