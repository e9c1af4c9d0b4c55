#include "shared/data/order/alias_table.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "shared/data/order/permutation.h"

namespace stoker::data::order {
namespace {

std::vector<uint64_t> draws_of(const std::vector<double>& weights, uint64_t draws) {
  const AliasTable table(weights);
  std::vector<uint64_t> counts(weights.size());
  for (uint64_t i = 0; i < draws; ++i) ++counts[table.sample(derived_seed(3, i))];
  return counts;
}

// Chi-squared statistic over the indices with nonzero weight. Seeds are fixed, so the result is
// deterministic; the bound is the mean plus five standard deviations.
void expect_drawn_by_weight(const std::vector<double>& weights) {
  constexpr uint64_t kDraws = 200'000;
  const auto counts = draws_of(weights, kDraws);
  double sum = 0, chi = 0, cells = 0;
  for (const double weight : weights) sum += weight;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double expected = kDraws * (weights[i] / sum);
    if (weights[i] == 0) {
      EXPECT_EQ(counts[i], 0u) << i;
    } else if (expected >= 5) {
      chi += std::pow(static_cast<double>(counts[i]) - expected, 2) / expected;
      ++cells;
    }
  }
  EXPECT_LT(chi, cells + 5 * std::sqrt(2 * cells));
}

TEST(AliasTableTest, SamplesProportionallyToWeight) {
  expect_drawn_by_weight({1, 1, 1, 1});
  expect_drawn_by_weight({0.1, 0.2, 0.3, 0.4});
  expect_drawn_by_weight({1000, 1, 1, 1, 1, 1});
  expect_drawn_by_weight({0, 5, 0, 0, 3, 0});
  std::vector<double> many;
  for (int i = 0; i < 1000; ++i) many.push_back(i % 7 == 0 ? 0 : 1 + std::sin(i));
  expect_drawn_by_weight(many);
}

TEST(AliasTableTest, NeverSamplesZeroWeight) {
  std::vector<double> weights(10'000, 0.0);
  weights[1234] = 1e-300;
  for (const uint64_t random : {0ull, 1ull, 1ull << 63, ~0ull})
    EXPECT_EQ(AliasTable(weights).sample(random), 1234u);
  const auto counts = draws_of(weights, 50'000);
  EXPECT_EQ(counts[1234], 50'000u);
}

TEST(AliasTableTest, AcceptsSingleAndHugeWeights) {
  EXPECT_EQ(AliasTable(std::vector<double>{7}).sample(~0ull), 0u);
  const auto counts = draws_of({1e308, 1e308}, 1000);  // their sum is infinite
  EXPECT_GT(counts[0], 400u);
  EXPECT_GT(counts[1], 400u);
}

}  // namespace
}  // namespace stoker::data::order
