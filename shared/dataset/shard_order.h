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
#include <span>
#include <vector>

namespace stoker::dataset {

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

}  // namespace stoker::dataset
