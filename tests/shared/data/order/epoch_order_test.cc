#include "shared/data/order/epoch_order.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace stoker::data::order {
namespace {

using config::ShuffleMode;
using Samples = std::vector<uint64_t>;

Samples order_of(const EpochOrder& order, uint64_t epoch) {
  Samples samples;
  for (uint64_t position = 0; position < order.size(); ++position)
    samples.push_back(order.at(epoch, position));
  return samples;
}

bool is_permutation_of_all(Samples order) {
  std::ranges::sort(order);
  for (uint64_t i = 0; i < order.size(); ++i)
    if (order[i] != i) return false;
  return true;
}

// Shards of 1, 2, 3, ... samples up to a total size; the last one has the remaining samples.
std::vector<uint64_t> refreshable_shards(uint64_t size) {
  std::vector<uint64_t> ends;
  for (uint64_t end = 1, length = 2; end < size; end += length++) ends.push_back(end);
  ends.push_back(size);
  return ends;
}

TEST(EpochOrderTest, IsPermutationForEverySizeAndMode) {
  for (uint64_t size = 1; size <= 300; ++size) {
    for (const uint64_t parameter : {1, 2, 3, 7, 64, 299, 1000}) {
      for (const ShuffleMode shuffle :
           {ShuffleMode::kFull, ShuffleMode::kNone, ShuffleMode::kBlock, ShuffleMode::kShards}) {
        const EpochOrder order({.size = size,
                                .seed = size * 31,
                                .shuffle = shuffle,
                                .window = parameter,
                                .shards_open = parameter,
                                .shard_ends = refreshable_shards(size)});
        for (const uint64_t epoch : {0ull, 5ull, ~0ull / size - 1})
          ASSERT_TRUE(is_permutation_of_all(order_of(order, epoch)))
              << "size " << size << " parameter " << parameter << " shuffle "
              << static_cast<int>(shuffle) << " epoch " << epoch;
      }
    }
  }
}

TEST(EpochOrderTest, DiffersByEpochAndSeedWithAnyShuffle) {
  for (const ShuffleMode shuffle :
       {ShuffleMode::kFull, ShuffleMode::kBlock, ShuffleMode::kShards}) {
    OrderOptions options{.size = 500,
                         .seed = 1,
                         .shuffle = shuffle,
                         .window = 20,
                         .shards_open = 3,
                         .shard_ends = refreshable_shards(500)};
    const EpochOrder first(options);
    options.seed = 2;
    const EpochOrder second(options);
    EXPECT_NE(order_of(first, 0), order_of(first, 1));
    EXPECT_NE(order_of(first, 0), order_of(second, 0));
    EXPECT_NE(order_of(first, 2), order_of(second, 1));
  }
}

// ---- Window

TEST(BlockShuffleTest, MovesSampleByLessThanBlockSize) {
  for (const uint64_t window : {2ull, 3ull, 10ull, 128ull, 999ull}) {
    const EpochOrder order(
        {.size = 1000, .seed = 3, .shuffle = ShuffleMode::kBlock, .window = window});
    for (uint64_t epoch = 0; epoch < 20; ++epoch) {
      const Samples samples = order_of(order, epoch);
      for (uint64_t position = 0; position < samples.size(); ++position) {
        const uint64_t way =
            std::max(samples[position], position) - std::min(samples[position], position);
        ASSERT_LT(way, window) << "place " << position << " epoch " << epoch;
      }
    }
  }
}

TEST(BlockShuffleTest, UsesFullBlockSize) {
  const EpochOrder order({.size = 1000, .seed = 3, .shuffle = ShuffleMode::kBlock, .window = 100});
  uint64_t farthest = 0;
  for (uint64_t position = 0; position < 1000; ++position) {
    const uint64_t sample = order.at(0, position);
    farthest = std::max(farthest, std::max(sample, position) - std::min(sample, position));
  }
  EXPECT_GT(farthest, 80u);
}

// With fixed boundaries, two adjacent samples at a boundary would never change sides.
TEST(BlockShuffleTest, ChangesBlockBoundariesPerEpoch) {
  constexpr uint64_t kSize = 200, kWindow = 10;
  const EpochOrder order(
      {.size = kSize, .seed = 8, .shuffle = ShuffleMode::kBlock, .window = kWindow});
  std::vector<bool> crossed(kSize);  // [i]: a sample from before i was at or after i
  for (uint64_t epoch = 0; epoch < 100; ++epoch)
    for (uint64_t position = 0; position < kSize; ++position)
      for (uint64_t border = order.at(epoch, position) + 1; border <= position; ++border)
        crossed[border] = true;
  EXPECT_EQ(std::count(crossed.begin() + 1, crossed.end(), false), 0);
}

TEST(BlockShuffleTest, MatchesFullShuffleWithBlockOfDatasetSize) {
  const EpochOrder full({.size = 77, .seed = 4});
  for (const uint64_t window : {77ull, 78ull, 1ull << 62}) {
    const EpochOrder order(
        {.size = 77, .seed = 4, .shuffle = ShuffleMode::kBlock, .window = window});
    EXPECT_EQ(order_of(order, 3), order_of(full, 3)) << window;
  }
}

// ---- Shards

size_t shard_of(const std::vector<uint64_t>& ends, uint64_t sample) {
  return static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), sample) - ends.begin());
}

// The shards in the order in which they are opened. Each group of `open` shards must be used up
// before the next one starts.
Samples opened_shards(const Samples& samples, const std::vector<uint64_t>& ends, uint64_t open) {
  Samples opened;
  std::set<size_t> group;
  uint64_t left = 0;
  for (size_t position = 0; position < samples.size(); ++position) {
    if (left == 0) {
      // The group contains the shards of the next samples.
      group.clear();
      for (size_t at = position; at < samples.size(); ++at) {
        const size_t shard = shard_of(ends, samples[at]);
        if (group.contains(shard)) continue;
        if (group.size() == open) break;
        group.insert(shard);
        left += ends[shard] - (shard == 0 ? 0 : ends[shard - 1]);
      }
      opened.insert(opened.end(), group.begin(), group.end());
    }
    EXPECT_TRUE(group.contains(shard_of(ends, samples[position]))) << "place " << position;
    --left;
  }
  return opened;
}

TEST(ShardShuffleTest, LimitsNumberOfOpenShards) {
  const std::vector<uint64_t> ends = refreshable_shards(2000);
  for (const uint64_t open : {1ull, 2ull, 5ull, 20ull}) {
    const EpochOrder order({.size = 2000,
                            .seed = 6,
                            .shuffle = ShuffleMode::kShards,
                            .shards_open = open,
                            .shard_ends = ends});
    for (uint64_t epoch = 0; epoch < 10; ++epoch) {
      const Samples opened = opened_shards(order_of(order, epoch), ends, open);
      EXPECT_EQ(opened.size(), ends.size());
      EXPECT_TRUE(is_permutation_of_all(opened));
    }
  }
}

TEST(ShardShuffleTest, ChangesGroupsOfOpenShardsPerEpoch) {
  std::vector<uint64_t> ends;
  for (uint64_t shard = 1; shard <= 20; ++shard) ends.push_back(shard * 10);
  const EpochOrder order({.size = 200,
                          .seed = 6,
                          .shuffle = ShuffleMode::kShards,
                          .shards_open = 4,
                          .shard_ends = ends});
  std::set<std::set<size_t>> groups;
  for (uint64_t epoch = 0; epoch < 30; ++epoch) {
    std::set<size_t> first;
    for (uint64_t position = 0; position < 40; ++position)
      first.insert(shard_of(ends, order.at(epoch, position)));
    groups.insert(first);
  }
  EXPECT_GT(groups.size(), 25u);
}

TEST(ShardShuffleTest, MixesSamplesOfOpenShards) {
  std::vector<uint64_t> ends{100, 200, 300, 400};
  const EpochOrder order({.size = 400,
                          .seed = 9,
                          .shuffle = ShuffleMode::kShards,
                          .shards_open = 2,
                          .shard_ends = ends});
  // Of the shard between adjacent samples: about half of 200 when two shards are mixed.
  uint64_t changes = 0;
  for (uint64_t position = 1; position < 200; ++position)
    changes += shard_of(ends, order.at(0, position)) != shard_of(ends, order.at(0, position - 1));
  EXPECT_GT(changes, 70u);
  EXPECT_LT(changes, 130u);
}

TEST(ShardShuffleTest, MatchesFullShuffleWithAllShardsOpen) {
  const EpochOrder full({.size = 77, .seed = 4});
  const EpochOrder all({.size = 77,
                        .seed = 4,
                        .shuffle = ShuffleMode::kShards,
                        .shards_open = 2,
                        .shard_ends = {30, 77}});
  const EpochOrder no_shards({.size = 77, .seed = 4, .shuffle = ShuffleMode::kShards});
  EXPECT_EQ(order_of(all, 3), order_of(full, 3));
  EXPECT_EQ(order_of(no_shards, 3), order_of(full, 3));
}

TEST(ShardShuffleTest, ReturnsRequestedEpochToEachThread) {
  const OrderOptions options{.size = 600,
                             .seed = 5,
                             .shuffle = ShuffleMode::kShards,
                             .shards_open = 3,
                             .shard_ends = refreshable_shards(600)};
  constexpr uint64_t kEpochs = 12;
  std::vector<Samples> expected;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch)
    expected.push_back(order_of(EpochOrder(options), epoch));
  const EpochOrder shared(options);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t thread = 0; thread < wrong.size(); ++thread)
    threads.emplace_back([&, thread] {
      for (uint64_t i = 0; i < 3 * kEpochs; ++i) {
        const uint64_t epoch = (i * 5 + thread) % kEpochs;
        wrong[thread] += order_of(shared, epoch) != expected[epoch];
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace stoker::data::order
