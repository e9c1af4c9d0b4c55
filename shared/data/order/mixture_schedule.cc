#include "shared/data/order/mixture_schedule.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>
#include <numeric>

#include "shared/data/order/permutation.h"

namespace stoker::data::order {
namespace {

// Tolerance, because decimal fractions are not exact in binary: 0.7 of 10 is 7.
constexpr double kNearlyWhole = 1e-9;

std::vector<double> shares_of(const std::vector<double>& weights) {
  const double largest = *std::max_element(weights.begin(), weights.end());
  // Divided by the maximum first, because the sum of large weights can overflow.
  std::vector<double> shares;
  for (const double weight : weights) shares.push_back(weight / largest);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

// Empty if a block of this length cannot represent the shares exactly.
std::vector<uint64_t> exact_quotas(const std::vector<double>& shares, uint64_t length) {
  std::vector<uint64_t> quotas;
  for (const double share : shares) {
    const double exact = share * static_cast<double>(length);
    const double whole = std::round(exact);
    if (whole < 1 || std::abs(exact - whole) > kNearlyWhole * exact) return {};
    quotas.push_back(static_cast<uint64_t>(whole));
  }
  const uint64_t sum = std::accumulate(quotas.begin(), quotas.end(), uint64_t{0});
  return sum == length ? quotas : std::vector<uint64_t>();
}

// Every dataset gets at least 1. The difference to the block length is then added to, or removed
// from, the datasets that are farthest from their share.
std::vector<uint64_t> rounded_quotas(const std::vector<double>& shares) {
  constexpr auto kLength = static_cast<double>(kMaxBlockLength);
  std::vector<uint64_t> quotas;
  for (const double share : shares)
    quotas.push_back(std::max<uint64_t>(1, static_cast<uint64_t>(share * kLength)));
  const auto lack = [&](size_t component) {
    return shares[component] * kLength - static_cast<double>(quotas[component]);
  };
  std::vector<size_t> datasets(quotas.size());
  std::iota(datasets.begin(), datasets.end(), size_t{0});
  const auto lacks_less = [&](size_t a, size_t b) { return lack(a) < lack(b); };
  uint64_t sum = std::accumulate(quotas.begin(), quotas.end(), uint64_t{0});
  for (; sum < kMaxBlockLength; ++sum)
    ++quotas[*std::max_element(datasets.begin(), datasets.end(), lacks_less)];
  const auto cannot_give = [&](size_t component) { return quotas[component] == 1; };
  for (; sum > kMaxBlockLength; --sum) {
    std::erase_if(datasets, cannot_give);
    --quotas[*std::min_element(datasets.begin(), datasets.end(), lacks_less)];
  }
  return quotas;
}

std::vector<uint64_t> quotas_of(const std::vector<double>& weights) {
  const std::vector<double> shares = shares_of(weights);
  for (uint64_t length = weights.size(); length <= kMaxBlockLength; ++length)
    if (auto quotas = exact_quotas(shares, length); !quotas.empty()) return quotas;
  return rounded_quotas(shares);
}

}  // namespace

MixtureSchedule::MixtureSchedule(const std::vector<double>& weights, uint64_t seed)
    : seed_(seed), ends_(quotas_of(weights)) {
  assert(!weights.empty() && weights.size() <= kMaxBlockLength);
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
}

MixtureSlot MixtureSchedule::at(uint64_t position) const {
  const uint64_t number = position / block();
  const RoundKeys keys = round_keys(derived_seed(seed_, number));
  const uint64_t offset = permuted(position % block(), block(), keys);
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), offset);
  const uint64_t begin = end == ends_.begin() ? 0 : *(end - 1);
  return {.component = static_cast<uint64_t>(end - ends_.begin()),
          .position = number * (*end - begin) + (offset - begin)};
}

std::vector<uint64_t> MixtureSchedule::quotas() const {
  std::vector<uint64_t> quotas;
  std::adjacent_difference(ends_.begin(), ends_.end(), std::back_inserter(quotas));
  return quotas;
}

}  // namespace stoker::data::order
