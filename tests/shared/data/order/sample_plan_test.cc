#include "shared/data/order/sample_plan.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace stoker::data::order {
namespace {

std::vector<uint64_t> epoch_order(const PlanOptions& options, uint64_t epoch) {
  PlanOptions one_by_one = options;
  one_by_one.batch = 1;
  const SamplePlan plan(one_by_one);
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < options.size; ++i)
    order.push_back(plan.at(epoch * options.size + i, 0).sample);
  return order;
}

bool covers_all_samples(const std::vector<uint64_t>& order) {
  std::vector<bool> seen(order.size());
  for (const uint64_t sample : order) {
    if (sample >= order.size() || seen[sample]) return false;
    seen[sample] = true;
  }
  return true;
}

// As len(torch.utils.data.DataLoader) has them with drop_last.
TEST(SamplePlanTest, CountsTicketsOfEpoch) {
  using config::LastBatchPolicy;
  const auto tickets = [](LastBatchPolicy last, uint64_t first_ticket = 0) {
    return SamplePlan({.size = 23,
                       .batch = 5,
                       .last_batch = last,
                       .first_ticket = first_ticket,
                       .first_epoch = first_ticket > 0 ? 2u : 0u});
  };
  EXPECT_EQ(tickets(LastBatchPolicy::kCarryOver).epoch_tickets(), 4.6);
  EXPECT_EQ(tickets(LastBatchPolicy::kDrop).epoch_tickets(), 4);
  EXPECT_EQ(tickets(LastBatchPolicy::kPad).epoch_tickets(), 5);
  EXPECT_EQ(
      SamplePlan({.size = 10, .batch = 5, .datasets = {{.size = 4, .repeat = 2}, {.size = 6}}})
          .epoch_tickets(),
      2.8);
  EXPECT_EQ(tickets(LastBatchPolicy::kDrop).epochs_before(10), 2.5);
  EXPECT_EQ(tickets(LastBatchPolicy::kDrop, 10).epochs_before(10), 2);
  EXPECT_EQ(tickets(LastBatchPolicy::kDrop, 10).epochs_before(14), 3);
}

// As for a refreshed dataset: the plan starts a new epoch at a given ticket.
TEST(SamplePlanTest, StartsNewEpochAtFirstTicket) {
  using config::LastBatchPolicy;
  for (const LastBatchPolicy last :
       {LastBatchPolicy::kCarryOver, LastBatchPolicy::kDrop, LastBatchPolicy::kPad}) {
    const PlanOptions options{
        .size = 23, .batch = 5, .last_batch = last, .first_ticket = 17, .first_epoch = 4};
    const SamplePlan plan(options);
    std::set<uint64_t> seen;
    const uint64_t tickets = last == LastBatchPolicy::kDrop ? 4 : 5;
    for (uint64_t ticket = 17; ticket < 17 + tickets; ++ticket) {
      EXPECT_EQ(plan.epoch_of(ticket), 4u);
      for (uint64_t row = 0; row < 5; ++row) {
        const PlannedSample planned = plan.at(ticket, row);
        if (planned.epoch == 4) seen.insert(planned.sample);
      }
    }
    EXPECT_EQ(seen.size(), last == LastBatchPolicy::kDrop ? 20u : 23u);
    EXPECT_EQ(plan.epoch_of(17 + tickets), 5u);
    // The same samples as in that epoch of a plan that starts at ticket 0.
    PlanOptions always = options;
    always.first_ticket = always.first_epoch = 0;
    const SamplePlan whole(always);
    if (last != LastBatchPolicy::kCarryOver) {
      EXPECT_EQ(plan.at(17, 2).sample, whole.at(4 * tickets, 2).sample);
    }
  }
}

TEST(SamplePlanTest, IsPermutationForEverySize) {
  for (uint64_t size = 1; size <= 2000; ++size)
    ASSERT_TRUE(covers_all_samples(epoch_order({.size = size, .seed = size * 7}, size % 5)))
        << size;
}

TEST(SamplePlanTest, SelectsDistinctSamplesInRangeForHugeSizes) {
  for (const uint64_t size :
       std::vector<uint64_t>{(1ull << 32) - 1, (1ull << 32), (1ull << 32) + 1, 1'000'000'000'039ull,
                             (1ull << 61) + 1, kMaxPlanSize}) {
    const SamplePlan plan({.size = size, .batch = 1, .seed = 3});
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 5000; ++i) {
      const uint64_t position = i % 2 == 0 ? i : size - 1 - i;
      const PlannedSample planned = plan.at(position, 0);
      ASSERT_LT(planned.sample, size);
      ASSERT_EQ(planned.epoch, 0u);
      ASSERT_TRUE(seen.insert(planned.sample).second);
    }
  }
}

TEST(SamplePlanTest, DiffersByEpochAndSeed) {
  const auto first = epoch_order({.size = 1000, .seed = 1}, 0);
  EXPECT_EQ(first, epoch_order({.size = 1000, .seed = 1}, 0));
  EXPECT_NE(first, epoch_order({.size = 1000, .seed = 1}, 1));
  EXPECT_NE(first, epoch_order({.size = 1000, .seed = 2}, 0));
  // Seed and epoch are not simply added.
  EXPECT_NE(epoch_order({.size = 1000, .seed = 1}, 2), epoch_order({.size = 1000, .seed = 2}, 1));
}

TEST(SamplePlanTest, PreservesOrderWithoutShuffle) {
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    const auto order = epoch_order({.size = 10, .shuffle = config::ShuffleMode::kNone}, epoch);
    for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(order[i], i);
  }
}

// Chi-squared statistic for counts that should be equal.
double chi_square(const std::vector<uint64_t>& counts) {
  uint64_t total = 0;
  for (const uint64_t count : counts) total += count;
  const double expected = static_cast<double>(total) / static_cast<double>(counts.size());
  double sum = 0;
  for (const uint64_t count : counts)
    sum += (static_cast<double>(count) - expected) * (static_cast<double>(count) - expected) /
           expected;
  return sum;
}

// Seeds are fixed, so the results are deterministic. The bound is the mean plus five standard
// deviations.
double bound(size_t cells) {
  const double freedom = static_cast<double>(cells - 1);
  return freedom + 5 * std::sqrt(2 * freedom);
}

TEST(SamplePlanTest, OrdersAdjacentSamplesIndependently) {
  for (const uint64_t size : {1000ull, 4096ull, 60000ull, 1000003ull}) {
    const SamplePlan plan({.size = size, .batch = 1, .seed = 11});
    constexpr uint64_t kBins = 16;
    std::vector<uint64_t> pairs(kBins * kBins);
    for (uint64_t i = 0; i < 40000; ++i) {
      const uint64_t here = plan.at(i * 2, 0).sample, next = plan.at(i * 2 + 1, 0).sample;
      ++pairs[here * kBins / size * kBins + next * kBins / size];
    }
    EXPECT_LT(chi_square(pairs), bound(pairs.size())) << size;
  }
}

TEST(SamplePlanTest, MovesEverySampleToEveryPositionOverEpochs) {
  constexpr uint64_t kSize = 50;
  std::vector<uint64_t> counts(kSize * kSize);
  for (uint64_t epoch = 0; epoch < 4000; ++epoch) {
    const auto order = epoch_order({.size = kSize, .seed = 5}, epoch);
    for (uint64_t i = 0; i < kSize; ++i) ++counts[i * kSize + order[i]];
  }
  EXPECT_LT(chi_square(counts), bound(counts.size()));
}

TEST(SamplePlanTest, UsesEverySampleOncePerEpochAcrossBatches) {
  const PlanOptions options{.size = 103, .batch = 10, .seed = 9};
  const SamplePlan plan(options);
  std::vector<std::vector<uint64_t>> epochs(3);
  for (uint64_t ticket = 0; ticket < 40; ++ticket) {
    for (uint64_t row = 0; row < options.batch; ++row) {
      const PlannedSample planned = plan.at(ticket, row);
      ASSERT_EQ(planned.epoch, (ticket * 10 + row) / 103);
      if (planned.epoch < epochs.size()) epochs[planned.epoch].push_back(planned.sample);
    }
  }
  for (const auto& order : epochs) {
    ASSERT_EQ(order.size(), options.size);
    EXPECT_TRUE(covers_all_samples(order));
  }
  EXPECT_EQ(plan.at(10, 2).epoch, 0u);
  EXPECT_EQ(plan.at(10, 3).epoch, 1u);
  EXPECT_EQ(plan.epoch_of(10), 0u);
  EXPECT_EQ(plan.epoch_of(11), 1u);
}

TEST(SamplePlanTest, AllowsBatchLargerThanDataset) {
  const SamplePlan plan({.size = 3, .batch = 8, .seed = 1});
  std::vector<uint64_t> first{plan.at(0, 0).sample, plan.at(0, 1).sample, plan.at(0, 2).sample};
  EXPECT_TRUE(covers_all_samples(first));
  EXPECT_EQ(plan.at(0, 7).epoch, 2u);
  EXPECT_EQ(plan.at(1, 1).epoch, 3u);
}

TEST(SamplePlanTest, AlwaysSelectsOnlySample) {
  const SamplePlan plan({.size = 1, .batch = 4, .seed = 1});
  EXPECT_EQ(plan.at(100, 3).sample, 0u);
  EXPECT_EQ(plan.at(100, 3).epoch, 403u);
  EXPECT_EQ(plan.replacement(100, 3, 7).sample, 0u);
}

TEST(SamplePlanTest, SelectsDistinctReplacementsFromSameEpoch) {
  const PlanOptions options{.size = 37, .batch = 5, .seed = 2};
  const SamplePlan plan(options);
  for (uint64_t ticket = 0; ticket < 30; ++ticket) {
    for (uint64_t row = 0; row < options.batch; ++row) {
      std::set<uint64_t> tried{plan.at(ticket, row).sample};
      for (uint64_t attempt = 1; attempt < options.size; ++attempt) {
        const PlannedSample other = plan.replacement(ticket, row, attempt);
        ASSERT_EQ(other.epoch, plan.at(ticket, row).epoch);
        ASSERT_TRUE(tried.insert(other.sample).second);
      }
      EXPECT_EQ(plan.replacement(ticket, row, options.size).sample, plan.at(ticket, row).sample);
    }
  }
}

TEST(SamplePlanTest, SelectsNextSampleInOrderAsReplacement) {
  const SamplePlan plan({.size = 100, .batch = 10, .seed = 4});
  EXPECT_EQ(plan.replacement(3, 4, 1).sample, plan.at(3, 5).sample);
  EXPECT_EQ(plan.replacement(3, 9, 2).sample, plan.at(4, 1).sample);
  EXPECT_EQ(plan.replacement(9, 9, 1).sample, plan.at(0, 0).sample);  // wraps around
}

// A version with another order of samples could not resume runs of earlier versions.
TEST(SamplePlanTest, MatchesRecordedOrder) {
  const auto first = [](const PlanOptions& options, uint64_t ticket) {
    const SamplePlan plan(options);
    std::vector<uint64_t> samples;
    for (uint64_t row = 0; row < 8; ++row) samples.push_back(plan.at(ticket, row).sample);
    return samples;
  };
  using Batch = std::vector<uint64_t>;
  EXPECT_EQ(first({.size = 10, .batch = 8, .seed = 1}, 0), (Batch{2, 6, 4, 9, 8, 5, 0, 7}));
  EXPECT_EQ(first({.size = 10, .batch = 8, .seed = 1}, 1), (Batch{1, 3, 4, 0, 6, 1, 2, 7}));
  EXPECT_EQ(first({.size = 60000, .batch = 8, .seed = 42}, 123456),
            (Batch{46978, 2645, 5237, 57947, 35538, 25619, 15272, 408}));
  EXPECT_EQ(first({.size = 1'281'167, .batch = 8, .seed = 0}, 0),
            (Batch{523846, 778741, 61999, 435182, 195008, 1074934, 666065, 849143}));
  EXPECT_EQ(first({.size = 1ull << 40, .batch = 8, .seed = ~0ull}, 7),
            (Batch{267780407698, 818040547202, 882953546684, 442333341677, 738348277635,
                   699774233981, 1073104640320, 885929210166}));
}

}  // namespace
}  // namespace stoker::data::order
