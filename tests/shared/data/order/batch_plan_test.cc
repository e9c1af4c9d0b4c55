// Looking up several rows of a batch together gives the same samples as single lookups, for each
// order.
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "shared/data/order/permutation.h"
#include "shared/data/order/sample_plan.h"

namespace stoker::data::order {
namespace {

using config::LastBatchPolicy;
using config::ShuffleMode;

// For all tickets until the third epoch, and from various rows.
void expect_same(const PlanOptions& options, const std::string& what) {
  const SamplePlan plan(options);
  const uint64_t tickets = 3 * plan.epoch_size() / options.batch + 2;
  for (uint64_t ticket = options.first_ticket; ticket < options.first_ticket + tickets; ++ticket) {
    for (uint64_t first = 0; first < options.batch; first += 1 + options.batch / 7) {
      std::vector<PlannedSample> planned(options.batch - first);
      plan.at(ticket, first, planned);
      for (uint64_t i = 0; i < planned.size(); ++i) {
        const PlannedSample one = plan.at(ticket, first + i);
        ASSERT_EQ(planned[i].sample, one.sample) << what << ", ticket " << ticket;
        ASSERT_EQ(planned[i].epoch, one.epoch) << what << ", ticket " << ticket;
        ASSERT_EQ(planned[i].dataset_epoch, one.dataset_epoch) << what << ", ticket " << ticket;
      }
    }
  }
}

TEST(SamplePlanRowsTest, MatchesSingleRowsInEveryShuffleMode) {
  for (const ShuffleMode shuffle :
       {ShuffleMode::kFull, ShuffleMode::kNone, ShuffleMode::kBlock, ShuffleMode::kShards})
    for (const LastBatchPolicy last :
         {LastBatchPolicy::kCarryOver, LastBatchPolicy::kDrop, LastBatchPolicy::kPad})
      for (const uint64_t size : {200ull, 255ull, 257ull, 1000ull})
        for (const uint64_t batch : {1ull, 7ull, 64ull, 200ull})
          expect_same({.size = size,
                       .batch = batch,
                       .seed = size,
                       .shuffle = shuffle,
                       .window = 37,
                       .shards_open = 2,
                       .shard_ends = {10, 50, 51, 180, size},
                       .last_batch = last},
                      "shuffle " + std::to_string(static_cast<int>(shuffle)) + ", last batch " +
                          std::to_string(static_cast<int>(last)) + ", size " +
                          std::to_string(size) + ", batch " + std::to_string(batch));
}

TEST(SamplePlanRowsTest, MatchesSingleRowsWhenBatchSpansEpochs) {
  for (const uint64_t size : {1ull, 2ull, 3ull, 10ull})
    for (const LastBatchPolicy last : {LastBatchPolicy::kCarryOver, LastBatchPolicy::kPad})
      expect_same({.size = size, .batch = 64, .last_batch = last}, "size " + std::to_string(size));
}

TEST(SamplePlanRowsTest, MatchesSingleRowsAfterStartTicketOnRank) {
  expect_same(
      {.size = 100, .batch = 16, .first_ticket = 1000, .first_epoch = 7, .rank = 1, .world = 3},
      "a later rank");
}

TEST(SamplePlanRowsTest, MatchesSingleRowsWithSeveralDatasets) {
  expect_same({.size = 90, .batch = 16, .datasets = {{.size = 40}, {.size = 50}}}, "two sets");
  expect_same({.size = 90, .batch = 16, .datasets = {{.size = 40, .repeat = 3}, {.size = 50}}},
              "one of them repeated");
  expect_same({.size = 90, .batch = 16, .datasets = {{.size = 90, .repeat = 2}}},
              "a set, repeated");
  expect_same({.size = 90,
               .batch = 16,
               .datasets = {{.size = 40, .weight = 0.7}, {.size = 50, .weight = 0.3}}},
              "a weighted mixture");
  std::vector<double> weights(90);
  std::iota(weights.begin(), weights.end(), 0.0);
  expect_same({.size = 90, .batch = 16, .datasets = {{.size = 90, .sample_weights = weights}}},
              "samples with weights");
}

TEST(SamplePlanRowsTest, PermutesManyIndicesLikeSingleOnes) {
  for (const uint64_t size : {1ull, 2ull, 5ull, 64ull, 65ull, 4097ull, (1ull << 61) + 1}) {
    const RoundKeys keys = round_keys(derived_seed(size, 3));
    for (const size_t count : {0, 1, 31, 32, 33, 100}) {
      std::vector<uint64_t> positions(count);
      for (size_t i = 0; i < count; ++i) positions[i] = i * 7919 % size;
      const std::vector<uint64_t> before = positions;
      permute(positions, size, keys);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(positions[i], permuted(before[i], size, keys));
    }
  }
}

}  // namespace
}  // namespace stoker::data::order
