// SamplePlan with several datasets: mixtures, repeats, weighted sampling; last batches and ranks.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "shared/data/order/sample_plan.h"

namespace stoker::data::order {
namespace {

using config::LastBatchPolicy;
using config::ShuffleMode;
using SampleList = std::vector<uint64_t>;

SampleList taken(const SamplePlan& plan, uint64_t first_ticket, uint64_t tickets) {
  SampleList samples;
  for (uint64_t ticket = first_ticket; ticket < first_ticket + tickets; ++ticket)
    for (uint64_t row = 0; row < plan.options().batch; ++row)
      samples.push_back(plan.at(ticket, row).sample);
  return samples;
}

std::map<uint64_t, uint64_t> counts_of(const SampleList& samples) {
  std::map<uint64_t, uint64_t> counts;
  for (const uint64_t sample : samples) ++counts[sample];
  return counts;
}

PlanOptions weighted_pair() {
  return {.size = 110,
          .batch = 10,
          .seed = 3,
          .datasets = {{.size = 100, .weight = 0.7}, {.size = 10, .weight = 0.3}}};
}

std::vector<PlanOptions> one_of_each() {
  std::vector<PlanOptions> all;
  const std::vector<uint64_t> shards{7, 20, 21, 60, 100};
  for (const ShuffleMode shuffle :
       {ShuffleMode::kFull, ShuffleMode::kNone, ShuffleMode::kBlock, ShuffleMode::kShards}) {
    const PlanOptions plain{.size = 100,
                            .batch = 12,
                            .seed = 9,
                            .shuffle = shuffle,
                            .window = 10,
                            .shards_open = 2,
                            .shard_ends = shards};
    all.push_back(plain);
    for (const LastBatchPolicy last : {LastBatchPolicy::kDrop, LastBatchPolicy::kPad}) {
      all.push_back(plain);
      all.back().last_batch = last;
    }
    all.push_back(plain);
    all.back().datasets = {{.size = 60, .repeat = 3}, {.size = 40}};
    all.push_back(plain);
    all.back().datasets = {{.size = 60, .weight = 1}, {.size = 40, .weight = 2}};
  }
  PlanOptions drawn{.size = 100, .batch = 12, .seed = 9, .datasets = {{.size = 100}}};
  for (int i = 0; i < 100; ++i) drawn.datasets[0].sample_weights.push_back(i % 5);
  all.push_back(drawn);
  return all;
}

// ---- Concatenations

TEST(MultiDatasetPlanTest, ConcatenatesDatasetsWithoutWeights) {
  PlanOptions options{.size = 50, .batch = 7, .seed = 2};
  const SamplePlan one(options);
  options.datasets = {{.size = 20}, {.size = 30}};
  const SamplePlan two(options);
  EXPECT_EQ(taken(one, 0, 40), taken(two, 0, 40));
  EXPECT_EQ(two.at(8, 3).dataset_epoch, two.at(8, 3).epoch);
}

TEST(MultiDatasetPlanTest, RepeatsDatasetWithSeparatePassPerRepetition) {
  for (const ShuffleMode shuffle :
       {ShuffleMode::kFull, ShuffleMode::kNone, ShuffleMode::kBlock, ShuffleMode::kShards}) {
    const SamplePlan plan({.size = 50,
                           .batch = 10,
                           .seed = 2,
                           .shuffle = shuffle,
                           .window = 9,
                           .shards_open = 2,
                           .shard_ends = {5, 20, 35, 50},
                           .datasets = {{.size = 20, .repeat = 3}, {.size = 30}}});
    ASSERT_EQ(plan.epoch_size(), 90u);
    for (uint64_t epoch = 0; epoch < 4; ++epoch) {
      const auto counts = counts_of(taken(plan, epoch * 9, 9));
      ASSERT_EQ(counts.size(), 50u);
      for (const auto& [sample, count] : counts) EXPECT_EQ(count, sample < 20 ? 3u : 1u) << sample;
      std::set<std::pair<uint64_t, uint64_t>> items;
      for (uint64_t i = 0; i < 90; ++i) {
        const PlannedSample planned = plan.at(epoch * 9 + i / 10, i % 10);
        EXPECT_EQ(planned.epoch, epoch);
        EXPECT_EQ(planned.dataset_epoch / (planned.sample < 20 ? 3 : 1), epoch);
        EXPECT_TRUE(items.emplace(planned.sample, planned.dataset_epoch).second);
      }
    }
  }
}

TEST(MultiDatasetPlanTest, UsesShardsOfAllDatasets) {
  // Shards are opened one at a time and read in order, so the first sample of each identifies it.
  const SamplePlan plan({.size = 40,
                         .batch = 1,
                         .seed = 4,
                         .shuffle = ShuffleMode::kShards,
                         .shards_open = 1,
                         .shard_ends = {10, 20, 30, 40},
                         .datasets = {{.size = 20, .repeat = 2}, {.size = 20}}});
  std::map<uint64_t, int> opened;  // shard by its first sample
  for (uint64_t begin = 0; begin < 60; begin += 10) {
    SampleList group = taken(plan, begin, 10);
    std::ranges::sort(group);
    EXPECT_EQ(group.back() - group.front(), 9u);
    EXPECT_EQ(group.front() % 10, 0u);
    ++opened[group.front()];
  }
  EXPECT_EQ(opened, (std::map<uint64_t, int>{{0, 2}, {10, 2}, {20, 1}, {30, 1}}));
}

// ---- Weighted mixtures

TEST(MultiDatasetPlanTest, ContainsQuotaOfEachDatasetInEveryBatch) {
  const SamplePlan plan(weighted_pair());
  for (uint64_t ticket = 0; ticket < 500; ++ticket) {
    uint64_t of_first = 0;
    for (uint64_t row = 0; row < 10; ++row) of_first += plan.at(ticket, row).sample < 100;
    ASSERT_EQ(of_first, 7u) << ticket;
  }
}

TEST(MultiDatasetPlanTest, CountsEpochsPerMixtureComponent) {
  const SamplePlan plan(weighted_pair());
  std::vector<std::vector<SampleList>> passes(2);
  for (uint64_t ticket = 0; ticket < 300; ++ticket)
    for (uint64_t row = 0; row < 10; ++row) {
      const PlannedSample planned = plan.at(ticket, row);
      auto& own = passes[planned.sample < 100 ? 0 : 1];
      if (own.size() <= planned.dataset_epoch) own.resize(planned.dataset_epoch + 1);
      own[planned.dataset_epoch].push_back(planned.sample);
    }
  ASSERT_EQ(passes[0].size(), 21u);  // 2100 samples of 100
  ASSERT_EQ(passes[1].size(), 90u);  // 900 samples of 10
  for (const size_t set : {0u, 1u}) {
    const size_t size = set == 0 ? 100 : 10;
    for (const SampleList& dataset_epoch : passes[set]) {
      ASSERT_EQ(dataset_epoch.size(), size);
      EXPECT_EQ(std::set<uint64_t>(dataset_epoch.begin(), dataset_epoch.end()).size(), size);
    }
    EXPECT_NE(passes[set][0], passes[set][1]);
  }
}

TEST(MultiDatasetPlanTest, ShufflesDatasetsOfSameSizeIndependently) {
  const SamplePlan plan({.size = 200,
                         .batch = 2,
                         .seed = 3,
                         .datasets = {{.size = 100, .weight = 1}, {.size = 100, .weight = 1}}});
  SampleList first, second;
  for (uint64_t i = 0; i < 200; ++i) {
    const uint64_t sample = plan.at(i / 2, i % 2).sample;
    (sample < 100 ? first : second).push_back(sample % 100);
  }
  EXPECT_NE(first, second);
}

TEST(MultiDatasetPlanTest, SelectsMixtureReplacementFromSameDataset) {
  const SamplePlan plan(weighted_pair());
  for (uint64_t ticket = 0; ticket < 50; ++ticket)
    for (uint64_t row = 0; row < 10; ++row) {
      const PlannedSample planned = plan.at(ticket, row);
      std::set<uint64_t> tried{planned.sample};
      for (uint64_t attempt = 1; attempt < 10; ++attempt) {
        const PlannedSample other = plan.replacement(ticket, row, attempt);
        ASSERT_EQ(other.sample < 100, planned.sample < 100);
        ASSERT_EQ(other.dataset_epoch, planned.dataset_epoch);
        ASSERT_TRUE(tried.insert(other.sample).second);
      }
    }
}

TEST(MultiDatasetPlanTest, CountsMixtureEpochBySumOfComponents) {
  const SamplePlan plan(weighted_pair());
  EXPECT_EQ(plan.epoch_size(), 110u);
  EXPECT_EQ(plan.at(10, 9).epoch, 0u);
  EXPECT_EQ(plan.at(11, 0).epoch, 1u);
  EXPECT_EQ(plan.epoch_of(11), 1u);
}

// ---- Weighted sampling

TEST(MultiDatasetPlanTest, SamplesByWeightWithDistinctPasses) {
  const SamplePlan plan({.size = 4,
                         .batch = 10,
                         .seed = 8,
                         .datasets = {{.size = 4, .sample_weights = {0, 1, 2, 7}}}});
  std::vector<double> counts(4);
  std::set<uint64_t> passes;
  for (uint64_t ticket = 0; ticket < 2000; ++ticket)
    for (uint64_t row = 0; row < 10; ++row) {
      const PlannedSample planned = plan.at(ticket, row);
      ++counts[planned.sample];
      EXPECT_TRUE(passes.insert(planned.dataset_epoch).second)
          << "two uses with the same random choices";
      EXPECT_EQ(planned.epoch, (ticket * 10 + row) / 4);
    }
  EXPECT_EQ(counts[0], 0);
  EXPECT_NEAR(counts[1], 2000, 150);
  EXPECT_NEAR(counts[2], 4000, 200);
  EXPECT_NEAR(counts[3], 14000, 200);
}

TEST(MultiDatasetPlanTest, SelectsReplacementByNextWeightedSample) {
  const SamplePlan plan(
      {.size = 3, .batch = 1, .seed = 8, .datasets = {{.size = 3, .sample_weights = {0, 1, 1}}}});
  uint64_t others = 0;
  for (uint64_t ticket = 0; ticket < 100; ++ticket) {
    SampleList replacements;
    for (uint64_t attempt = 1; attempt <= 16; ++attempt) {
      replacements.push_back(plan.replacement(ticket, 0, attempt).sample);
      EXPECT_NE(replacements.back(), 0u);
      EXPECT_EQ(replacements.back(), plan.replacement(ticket, 0, attempt).sample);
    }
    others += std::ranges::count(replacements, plan.at(ticket, 0).sample) < 16;
  }
  EXPECT_EQ(others, 100u);
}

TEST(MultiDatasetPlanTest, SupportsWeightedSamplingInMixtureComponent) {
  PlanOptions options = weighted_pair();
  options.datasets[1].sample_weights = {0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  const SamplePlan plan(options);
  for (const uint64_t sample : taken(plan, 0, 200)) EXPECT_TRUE(sample < 100 || sample == 109);
}

// ---- Last batch

TEST(MultiDatasetPlanTest, KeepsOrderOfStreamInShuffledMixture) {
  PlanOptions options = weighted_pair();
  constexpr uint64_t kMany = uint64_t{1} << 60;
  options.datasets[1] = {.size = kMany, .weight = 0.3, .keeps_order = true};
  options.size = 100 + kMany;
  for (const ShuffleMode shuffle :
       {ShuffleMode::kFull, ShuffleMode::kNone, ShuffleMode::kBlock, ShuffleMode::kShards}) {
    options.shuffle = shuffle;
    options.shard_ends = {40, 100, 100 + kMany};
    const SamplePlan plan(options);
    SampleList of_stream;
    for (const uint64_t sample : taken(plan, 0, 30))
      if (sample >= 100) of_stream.push_back(sample - 100);
    // In each block of ten rows, the next three.
    ASSERT_EQ(of_stream.size(), 90u);
    for (uint64_t i = 0; i < of_stream.size(); ++i) EXPECT_EQ(of_stream[i] / 3, i / 3);
    EXPECT_EQ(plan.epoch_of(1'000'000), 0u);
  }
}

TEST(LastBatchPolicyTest, DropsIncompleteLastBatchWithDrop) {
  const SamplePlan span({.size = 103, .batch = 10, .seed = 5});
  const SamplePlan drop(
      {.size = 103, .batch = 10, .seed = 5, .last_batch = LastBatchPolicy::kDrop});
  EXPECT_EQ(taken(span, 0, 10), taken(drop, 0, 10));
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {
    EXPECT_EQ(counts_of(taken(drop, epoch * 10, 10)).size(), 100u);
    for (uint64_t ticket = epoch * 10; ticket < epoch * 10 + 10; ++ticket) {
      EXPECT_EQ(drop.at(ticket, 0).epoch, epoch);
      EXPECT_EQ(drop.at(ticket, 9).epoch, epoch);
      EXPECT_EQ(drop.epoch_of(ticket), epoch);
    }
  }
}

TEST(LastBatchPolicyTest, FillsLastBatchFromEpochStartWithPad) {
  const SamplePlan pad({.size = 103, .batch = 10, .seed = 5, .last_batch = LastBatchPolicy::kPad});
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {
    const uint64_t first = epoch * 11;
    EXPECT_EQ(counts_of(taken(pad, first, 11)).size(), 103u);
    for (uint64_t row = 3; row < 10; ++row) {
      EXPECT_EQ(pad.at(first + 10, row).sample, pad.at(first, row - 3).sample);
      EXPECT_EQ(pad.at(first + 10, row).epoch, epoch);
    }
    EXPECT_EQ(pad.epoch_of(first + 10), epoch);
    EXPECT_EQ(pad.epoch_of(first + 11), epoch + 1);
  }
}

TEST(LastBatchPolicyTest, RepeatsSamplesInPaddedBatchOfSmallDataset) {
  const SamplePlan pad({.size = 3, .batch = 8, .seed = 5, .last_batch = LastBatchPolicy::kPad});
  const SampleList batch = taken(pad, 4, 1);
  EXPECT_EQ(pad.epoch_of(4), 4u);
  EXPECT_EQ(counts_of(batch).size(), 3u);
  for (size_t row = 3; row < 8; ++row) EXPECT_EQ(batch[row], batch[row - 3]);
}

TEST(LastBatchPolicyTest, MatchesCarryOverWhenEpochEndsWithBatch) {
  PlanOptions options{.size = 100, .batch = 10, .seed = 5};
  const SamplePlan span(options);
  for (const LastBatchPolicy last : {LastBatchPolicy::kDrop, LastBatchPolicy::kPad}) {
    options.last_batch = last;
    EXPECT_EQ(taken(SamplePlan(options), 0, 35), taken(span, 0, 35));
  }
}

// ---- Ranks and batches

TEST(SamplePlanRankTest, SelectsSameSamplesWithAnyWorldSize) {
  for (PlanOptions options : one_of_each()) {
    const SamplePlan one(options);
    for (const uint64_t world : {2, 3, 4, 6, 12}) {
      options.world = world;
      options.batch = 12 / world;
      for (uint64_t ticket = 0; ticket < 40; ++ticket) {
        SampleList together;
        for (options.rank = 0; options.rank < world; ++options.rank) {
          const SamplePlan plan(options);
          ASSERT_EQ(plan.epoch_of(ticket), one.epoch_of(ticket));
          for (const uint64_t sample : taken(plan, ticket, 1)) together.push_back(sample);
        }
        ASSERT_EQ(together, taken(one, ticket, 1)) << "world " << world << " ticket " << ticket;
      }
    }
  }
}

TEST(SamplePlanBatchTest, SplitsSameSequenceWithAnyBatchSize) {
  for (PlanOptions options : one_of_each()) {
    if (options.last_batch != LastBatchPolicy::kCarryOver) continue;
    const SampleList sequence = taken(SamplePlan(options), 0, 50);
    for (const uint64_t batch : {1, 5, 100, 600}) {
      options.batch = batch;
      EXPECT_EQ(taken(SamplePlan(options), 0, 600 / batch), sequence) << batch;
    }
  }
}

TEST(ReplacementSampleTest, SelectsSameReplacementsInAnyOrder) {
  for (const PlanOptions& options : one_of_each()) {
    const SamplePlan plan(options), another(options);
    constexpr uint64_t kTickets = 30;
    std::vector<std::vector<PlannedSample>> asked(kTickets);
    for (uint64_t ticket = 0; ticket < kTickets; ++ticket)
      for (uint64_t attempt = 0; attempt <= 16; ++attempt)
        asked[ticket].push_back(plan.replacement(ticket, 5, attempt));
    // Another process can look them up in another order.
    for (uint64_t ticket = kTickets; ticket-- > 0;)
      for (uint64_t attempt = 17; attempt-- > 0;) {
        const PlannedSample& a = asked[ticket][attempt];
        const PlannedSample b = another.replacement(ticket, 5, attempt);
        ASSERT_EQ(std::tie(a.sample, a.epoch, a.dataset_epoch),
                  std::tie(b.sample, b.epoch, b.dataset_epoch));
        ASSERT_EQ(a.epoch, plan.at(ticket, 5).epoch);
        ASSERT_LT(a.sample, options.size);
      }
  }
}

// ---- Recorded orders

// A late position costs the same as an early one: nothing is replayed. The samples around position
// 10^12 of each order must not change between versions.
TEST(MultiDatasetPlanTest, MatchesRecordedOrderAtLargePositions) {
  const auto far = [](PlanOptions options) {
    options.batch = 4;
    return taken(SamplePlan(options), 1'000'000'000'000 / 4, 1);
  };
  const PlanOptions plain{.size = 60000,
                          .seed = 42,
                          .window = 1000,
                          .shards_open = 2,
                          .shard_ends = {10000, 10001, 25000, 60000}};
  const auto with = [&](ShuffleMode shuffle) {
    PlanOptions options = plain;
    options.shuffle = shuffle;
    return far(options);
  };
  EXPECT_EQ(with(ShuffleMode::kFull), (SampleList{22686, 24300, 23774, 17400}));
  EXPECT_EQ(with(ShuffleMode::kNone), (SampleList{40000, 40001, 40002, 40003}));
  EXPECT_EQ(with(ShuffleMode::kBlock), (SampleList{39765, 40652, 40388, 40525}));
  EXPECT_EQ(with(ShuffleMode::kShards), (SampleList{49462, 10663, 36600, 59831}));
  PlanOptions repeated = plain;
  repeated.datasets = {{.size = 10000, .repeat = 5}, {.size = 50000}};
  EXPECT_EQ(far(repeated), (SampleList{3483, 19930, 59101, 28291}));
  PlanOptions mixture = plain;
  mixture.datasets = {{.size = 10000, .weight = 0.7}, {.size = 50000, .weight = 0.3}};
  EXPECT_EQ(far(mixture), (SampleList{58897, 937, 9578, 38230}));
  PlanOptions drawn = plain;
  drawn.datasets = {{.size = 60000}};
  for (int i = 0; i < 60000; ++i) drawn.datasets[0].sample_weights.push_back(i % 100);
  EXPECT_EQ(far(drawn), (SampleList{33415, 57844, 35784, 3377}));
}

}  // namespace
}  // namespace stoker::data::order
