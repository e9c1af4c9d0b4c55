#include "evaluator/subset.h"

#include <vector>

#include <gtest/gtest.h>

namespace stoker::evaluator {
namespace {

std::vector<uint64_t> samples(const config::EvalConfig& config, uint64_t whole) {
  const Subset chosen = make_subset(config, whole);
  std::vector<uint64_t> all;
  for (uint64_t i = 0; i < chosen.size(); ++i) all.push_back(chosen.sample(i));
  return all;
}

TEST(SubsetTest, SelectsAllSamplesWithoutLimitOrBelowLimit) {
  EXPECT_EQ(samples({}, 4), (std::vector<uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(samples({.max_samples = 9}, 3), (std::vector<uint64_t>{0, 1, 2}));
}

TEST(SubsetTest, SelectsEvenlySpacedSamples) {
  EXPECT_EQ(samples({.max_samples = 4}, 12), (std::vector<uint64_t>{0, 3, 6, 9}));
  EXPECT_EQ(samples({.max_samples = 5}, 7), (std::vector<uint64_t>{0, 1, 2, 4, 5}));
}

TEST(SubsetTest, SelectsFirstSamples) {
  EXPECT_EQ(samples({.max_samples = 3, .subset = config::SampleSubset::kFirst}, 12),
            (std::vector<uint64_t>{0, 1, 2}));
}

TEST(SubsetTest, ContainsExactlySelectedSamples) {
  for (const auto subset : {config::SampleSubset::kEvenlySpaced, config::SampleSubset::kFirst}) {
    for (const uint64_t size : {1, 4, 6, 7}) {
      const Subset chosen = make_subset({.max_samples = size, .subset = subset}, 7);
      uint64_t found = 0;
      for (uint64_t sample = 0; sample < 7; ++sample) {
        if (!chosen.contains(sample)) continue;
        EXPECT_EQ(chosen.sample(found++), sample) << static_cast<int>(subset) << size;
      }
      EXPECT_EQ(found, size);
    }
  }
}

TEST(SubsetTest, DoesNotOverflowOnLargestDatasets) {
  constexpr uint64_t kMaxSamples = 1'000'000'000, kWhole = 10'000'000'000;
  const Subset chosen = make_subset({.max_samples = kMaxSamples}, kWhole);
  EXPECT_EQ(chosen.sample(kMaxSamples - 1), kWhole - 10);
}

}  // namespace
}  // namespace stoker::evaluator
