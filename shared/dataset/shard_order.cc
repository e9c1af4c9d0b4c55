#include "shared/dataset/shard_order.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "shared/dataset/permutation.h"

namespace stoker::dataset {
namespace {

// A batch spans two epochs at most, unless the set is smaller than a batch; and readers are a few
// batches apart.
constexpr size_t kKeptOrders = 4;

}  // namespace

ShardOrder::ShardOrder(std::span<const uint64_t> ends, uint64_t open, uint64_t epoch_seed)
    : open_(open), epoch_seed_(epoch_seed) {
  assert(!ends.empty() && open >= 1);
  shards_.resize(ends.size());
  const RoundKeys keys = round_keys(epoch_seed);
  uint64_t end = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const uint64_t shard = permuted(i, shards_.size(), keys);
    const uint64_t first = shard == 0 ? 0 : ends[shard - 1];
    end += ends[shard] - first;
    shards_[i] = {.first = first, .end = end};
  }
}

size_t ShardOrder::find(size_t from, size_t to, uint64_t index) const {
  const auto begin = shards_.begin();
  const auto found =
      std::upper_bound(begin + static_cast<ptrdiff_t>(from), begin + static_cast<ptrdiff_t>(to),
                       index, [](uint64_t at, const Shard& shard) { return at < shard.end; });
  return static_cast<size_t>(found - begin);
}

uint64_t ShardOrder::at(uint64_t index) const {
  assert(index < shards_.back().end);
  const size_t group = find(0, shards_.size(), index) / open_;
  const size_t from = group * open_;
  const size_t to = from + std::min<uint64_t>(open_, shards_.size() - from);
  const uint64_t begin = end_before(from);
  const RoundKeys keys = round_keys(derived_seed(epoch_seed_, group));
  const uint64_t mixed = begin + permuted(index - begin, shards_[to - 1].end - begin, keys);
  const size_t shard = find(from, to, mixed);
  return shards_[shard].first + (mixed - end_before(shard));
}

ShardOrders::ShardOrders(std::vector<uint64_t> ends, uint64_t open, uint64_t seed)
    : ends_(std::move(ends)), open_(open), seed_(seed) {}

std::shared_ptr<const ShardOrder> ShardOrders::of(uint64_t epoch) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(cached_.begin(), cached_.end(),
                   [epoch](const CachedOrder& cached) { return cached.epoch == epoch; });
  if (found != cached_.end()) return found->order;
  if (cached_.size() == kKeptOrders) cached_.erase(cached_.begin());
  cached_.push_back(
      {epoch, std::make_shared<ShardOrder>(ends_, open_, derived_seed(seed_, epoch))});
  return cached_.back().order;
}

}  // namespace stoker::dataset
