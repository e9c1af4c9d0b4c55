// ShardOrder: the order of one epoch over shards. The shards are shuffled, and the samples of a few
// open shards at a time are shuffled together.
//
// An index is looked up by binary search. The table of shards uses 16 bytes per shard and is built
// once per epoch.
//
// Threads: immutable after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "shared/config/feed_config.h"

namespace stoker::data::order {

class ShardOrder {
 public:
  // `ends`: cumulative number of samples up to the end of each shard; strictly increasing, not
  // empty. `open` >= 1: number of shards whose samples are shuffled together.
  ShardOrder(std::span<const uint64_t> ends, uint64_t open, uint64_t epoch_seed);

  uint64_t at(uint64_t index) const;  // index < ends.back()

 private:
  struct Shard {
    uint64_t first = 0;  // its first sample
    uint64_t end = 0;    // index after its last sample in the sequence of shuffled shards
  };
  uint64_t end_before(size_t shard) const { return shard == 0 ? 0 : shards_[shard - 1].end; }
  // The shard in [from, to) that contains the index.
  size_t find(size_t from, size_t to, uint64_t index) const;

  const uint64_t open_;
  const uint64_t epoch_seed_;
  std::vector<Shard> shards_;  // in the order of the epoch
};

// ShardOrders: the orders of all epochs. The most recently built ones are cached, because
// concurrent workers process nearby tickets.
//
// Threads:  any.
// Blocking: while the table of a new epoch is built, about 0.1 ms for 1000 shards.
class ShardOrders {
 public:
  ShardOrders(std::vector<uint64_t> ends, uint64_t open, uint64_t seed);
  std::shared_ptr<const ShardOrder> of(uint64_t epoch) const;

 private:
  struct CachedOrder {
    uint64_t epoch = 0;
    std::shared_ptr<const ShardOrder> order;
  };

  // Constant after construction.
  const std::vector<uint64_t> ends_;
  const uint64_t open_;
  const uint64_t seed_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  mutable std::vector<CachedOrder> cached_;  // newest last
};

// EpochOrder: the order of the samples of a dataset in each epoch, which contains every sample
// exactly once.
//
// full:   pseudo-random permutation of all samples.
// none:   the order of the sample numbers.
// block:  shuffled within windows of `window` consecutive samples, so that a sample moves by less
//         than a window; the window boundaries differ from epoch to epoch.
// shards: shuffled shards; the samples of `shards_open` shards at a time are shuffled together.
//
// The cost of a lookup is the same in every epoch: none for `none`, a computed permutation for
// `full` and `block`, and additionally two binary searches over the shards for `shards`.
//
// Threads: any.
struct OrderOptions {
  uint64_t size = 1;  // samples
  uint64_t seed = 1;
  config::ShuffleMode shuffle = config::ShuffleMode::kFull;
  uint64_t window = 1;               // block: at least 1
  uint64_t shards_open = 1;          // shards: at least 1
  std::vector<uint64_t> shard_ends;  // shards: as Dataset::shard_ends(); empty: one shard
};

class EpochOrder {
 public:
  explicit EpochOrder(const OrderOptions& options);

  uint64_t size() const { return size_; }
  uint64_t at(uint64_t epoch, uint64_t index) const;  // index < size()
  // Fills `samples` from `index`, which must not reach past the end of the epoch. Faster than
  // single lookups.
  void at(uint64_t epoch, uint64_t index, std::span<uint64_t> samples) const;

 private:
  // Fills `samples` from `index` up to the end of its window; returns the number filled.
  size_t in_window(uint64_t epoch, uint64_t index, std::span<uint64_t> samples) const;

  const uint64_t size_;
  const uint64_t seed_;
  const uint64_t window_;
  config::ShuffleMode shuffle_;
  std::optional<ShardOrders> maybe_shards_;
};

}  // namespace stoker::data::order
