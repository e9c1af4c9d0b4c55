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
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shared/config/feed_config.h"
#include "shared/dataset/shard_order.h"

namespace stoker::dataset {

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

}  // namespace stoker::dataset
