// ShardOrder: the order of one epoch over shards: the shards in a random order, a few of them open
// at a time, and the samples of the open ones mixed.
//
// A place is found by a binary search. The table of the shards in their order has 16 bytes a shard
// and is made once an epoch.
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
  // `ends`: for each shard the number of samples up to its end; strictly increasing, not empty.
  // `open` >= 1: shards whose samples are mixed with each other.
  ShardOrder(std::span<const uint64_t> ends, uint64_t open, uint64_t epoch_seed);

  uint64_t at(uint64_t index) const;  // place < ends.back()

 private:
  struct Shard {
    uint64_t first = 0;  // its first sample
    uint64_t end = 0;    // place after its last one, were the samples in order
  };
  uint64_t end_before(size_t shard) const { return shard == 0 ? 0 : shards_[shard - 1].end; }
  // The shard of [from, to) that holds the place.
  size_t find(size_t from, size_t to, uint64_t index) const;

  const uint64_t open_;
  const uint64_t epoch_seed_;
  std::vector<Shard> shards_;  // in the epoch's order
};

// ShardOrders: the orders of all epochs. The few that were asked for last are kept: the readers'
// tickets lie near each other.
//
// Threads:  any.
// Blocking: for a new epoch as long as making its table takes, about 0.1 ms for 1000 shards.
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
  mutable std::vector<CachedOrder> cached_;  // the newest last
};

// EpochOrder: in which order the samples of a set come, epoch after epoch; each exactly once an
// epoch.
//
// full:   any sample at any place.
// none:   as they are numbered.
// block:  mixed within windows of `window` neighbours, so that a sample is fewer than that from its
//         place; where the windows begin is another place in each epoch.
// shards: the shards in a random order; the samples of `shards_open` of them mixed at a time.
//
// A place costs the same in every epoch: nothing for `none`, a computed permutation for `full` and
// `block`, two binary searches over the shards beside it for `shards`.
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
  uint64_t at(uint64_t epoch, uint64_t index) const;  // place < size()
  // The samples of the places from `index` on, none past the epoch's end: for less than one by one.
  void at(uint64_t epoch, uint64_t index, std::span<uint64_t> samples) const;

 private:
  // Of the places from `index` on as many as are in one window; how many.
  size_t in_window(uint64_t epoch, uint64_t index, std::span<uint64_t> samples) const;

  const uint64_t size_;
  const uint64_t seed_;
  const uint64_t window_;
  config::ShuffleMode shuffle_;
  std::optional<ShardOrders> maybe_shards_;
};

}  // namespace stoker::data::order
