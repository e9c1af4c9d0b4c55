#include "shared/data/order/mixture_schedule.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::data::order {
namespace {

using ::testing::ElementsAre;
using Quotas = std::vector<uint64_t>;

Quotas quotas_of(const std::vector<double>& weights) {
  return MixtureSchedule(weights, 1).quotas();
}

TEST(MixtureScheduleTest, UsesShortestExactBlock) {
  EXPECT_EQ(quotas_of({0.7, 0.3}), (Quotas{7, 3}));
  EXPECT_EQ(quotas_of({7, 3}), (Quotas{7, 3}));
  EXPECT_EQ(quotas_of({0.1, 0.2, 0.7}), (Quotas{1, 2, 7}));
  EXPECT_EQ(quotas_of({5}), Quotas{1});
  EXPECT_EQ(quotas_of({1, 1, 1}), (Quotas{1, 1, 1}));
  EXPECT_EQ(quotas_of({0.125, 0.875}), (Quotas{1, 7}));
  EXPECT_EQ(quotas_of({0.9999, 0.0001}), (Quotas{9999, 1}));
}

TEST(MixtureScheduleTest, RoundsInexactWeightsToMaximumBlock) {
  EXPECT_EQ(quotas_of({std::sqrt(2.0), 1}), (Quotas{5858, 4142}));
  EXPECT_EQ(quotas_of({1e9, 1}), (Quotas{9999, 1})) << "every set gets one at least";
  EXPECT_EQ(quotas_of({1e-300, 1e-300}), (Quotas{1, 1}));
  EXPECT_EQ(quotas_of({1e308, 1e308}), (Quotas{1, 1})) << "their sum is infinite";
}

TEST(MixtureScheduleTest, FillsBlockWithQuotas) {
  std::vector<double> weights;
  for (int datasets = 1; datasets <= 64; ++datasets) {
    weights.push_back(std::exp(3 * std::sin(datasets * 1.7)) * (datasets % 9 == 0 ? 1e-9 : 1));
    const MixtureSchedule schedule(weights, 1);
    uint64_t sum = 0;
    for (const uint64_t quota : schedule.quotas()) {
      EXPECT_GE(quota, 1u);
      sum += quota;
    }
    EXPECT_EQ(sum, schedule.block());
    EXPECT_LE(schedule.block(), kMaxBlockLength);
  }
}

TEST(MixtureScheduleTest, ContainsQuotasInEveryBlockWithoutGaps) {
  const std::vector<double> weights{0.5, 0.2, 0.3};
  const MixtureSchedule schedule(weights, 77);
  Quotas taken(3);
  for (uint64_t block = 0; block < 500; ++block) {
    std::vector<std::vector<bool>> seen(3);
    for (size_t set = 0; set < 3; ++set) seen[set].resize(schedule.quotas()[set]);
    for (uint64_t i = 0; i < schedule.block(); ++i) {
      const MixtureSlot turn = schedule.at(block * schedule.block() + i);
      ASSERT_GE(turn.position, taken[turn.component]);
      ASSERT_LT(turn.position - taken[turn.component], seen[turn.component].size());
      ASSERT_FALSE(seen[turn.component][turn.position - taken[turn.component]]);
      seen[turn.component][turn.position - taken[turn.component]] = true;
    }
    for (size_t set = 0; set < 3; ++set) taken[set] += schedule.quotas()[set];
  }
  EXPECT_THAT(taken, ElementsAre(2500, 1000, 1500));
}

TEST(MixtureScheduleTest, ShufflesEachBlockIndependently) {
  const MixtureSchedule schedule({3, 1}, 5);
  std::vector<uint64_t> single(4);  // how often the second dataset was at this position of a block
  for (uint64_t position = 0; position < 4000; ++position)
    single[position % 4] += schedule.at(position).component;
  for (const uint64_t count : single) {
    EXPECT_GT(count, 200u);
    EXPECT_LT(count, 300u);
  }
}

}  // namespace
}  // namespace stoker::data::order
