#include "shared/data/order/alias_table.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "shared/data/counter_rng.h"

namespace stoker::data::order {
namespace {

constexpr double kWholeColumn = 4294967296.0;  // 2^32

// floor(random / 2^64 * size)
uint64_t scaled(uint64_t random, uint64_t size) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(Wide{random} * size >> 64);
}

}  // namespace

// A column is an equal share of the sum of all weights. An index with less weight than a column
// gives the rest of its column to an index with more, until every column is full.
AliasTable::AliasTable(std::span<const double> weights) : columns_(weights.size()) {
  assert(!weights.empty() && weights.size() <= kMaxWeights);
  const auto heaviest = std::max_element(weights.begin(), weights.end());
  const double largest = *heaviest;
  double sum = 0;
  for (const double weight : weights) sum += weight / largest;
  const double column = sum / static_cast<double>(weights.size());
  std::vector<double> left(weights.size());  // remaining weights, in columns
  std::vector<uint32_t> small, large;
  for (size_t i = 0; i < left.size(); ++i) {
    left[i] = weights[i] / largest / column;
    (left[i] < 1 ? small : large).push_back(static_cast<uint32_t>(i));
  }
  while (!small.empty() && !large.empty()) {
    const uint32_t giver = large.back();
    const uint32_t taker = small.back();
    small.pop_back();
    columns_[taker] = {.own = static_cast<uint32_t>(left[taker] * kWholeColumn), .alias = giver};
    left[giver] -= 1 - left[taker];
    if (left[giver] >= 1) continue;
    large.pop_back();
    small.push_back(giver);
  }
  // The remaining columns differ from full ones by rounding only, which must not make an index of
  // weight 0 possible.
  const auto instead = static_cast<uint32_t>(heaviest - weights.begin());
  for (const auto& rest : {small, large})
    for (const uint32_t number : rest)
      columns_[number] = {.own = 0, .alias = weights[number] > 0 ? number : instead};
}

uint64_t AliasTable::sample(uint64_t random) const {
  const uint64_t number = scaled(random, columns_.size());
  const Column& column = columns_[number];
  const auto coin = static_cast<uint32_t>(mix64(random + kGolden64) >> 32);
  return coin < column.own ? number : column.alias;
}

}  // namespace stoker::data::order
