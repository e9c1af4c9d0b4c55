#include "shared/data/order/epoch_order.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "shared/data/order/permutation.h"

namespace stoker::data::order {
namespace {

// A batch spans at most two epochs, unless the dataset is smaller than a batch, and workers are
// only a few batches apart.
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

namespace {

constexpr uint64_t kPhase = ~uint64_t{0};  // not a window number

}  // namespace

EpochOrder::EpochOrder(const OrderOptions& options)
    : size_(options.size), seed_(options.seed), window_(options.window), shuffle_(options.shuffle) {
  assert(size_ >= 1 && window_ >= 1 && options.shards_open >= 1);
  // Avoids work that does not change the order.
  if (shuffle_ == config::ShuffleMode::kBlock && window_ >= size_)
    shuffle_ = config::ShuffleMode::kFull;
  if (shuffle_ != config::ShuffleMode::kShards) return;
  if (options.shard_ends.size() <= options.shards_open) {
    shuffle_ = config::ShuffleMode::kFull;
  } else {
    assert(options.shard_ends.back() == size_);
    maybe_shards_.emplace(options.shard_ends, options.shards_open, seed_);
  }
}

uint64_t EpochOrder::at(uint64_t epoch, uint64_t index) const {
  uint64_t sample = 0;
  at(epoch, index, {&sample, 1});
  return sample;
}

void EpochOrder::at(uint64_t epoch, uint64_t index, std::span<uint64_t> samples) const {
  assert(index < size_ && samples.size() <= size_ - index);
  switch (shuffle_) {
    case config::ShuffleMode::kFull:
      std::iota(samples.begin(), samples.end(), index);
      permute(samples, size_, round_keys(derived_seed(seed_, epoch)));
      break;
    case config::ShuffleMode::kNone:
      std::iota(samples.begin(), samples.end(), index);
      break;
    case config::ShuffleMode::kBlock:
      while (!samples.empty()) {
        const size_t found = in_window(epoch, index, samples);
        samples = samples.subspan(found);
        index += found;
      }
      break;
    case config::ShuffleMode::kShards:
      const auto order = maybe_shards_->of(epoch);
      for (uint64_t& sample : samples) sample = order->at(index++);
      break;
  }
}

size_t EpochOrder::in_window(uint64_t epoch, uint64_t index, std::span<uint64_t> samples) const {
  const uint64_t epoch_seed = derived_seed(seed_, epoch);
  // Window 0 has a random length, so that the window boundaries, across which samples are not
  // mixed, differ from epoch to epoch.
  const uint64_t phase = derived_seed(epoch_seed, kPhase) % window_;
  const uint64_t number = (index + window_ - phase) / window_;
  const uint64_t begin = number == 0 ? 0 : phase + (number - 1) * window_;
  const uint64_t end = std::min(size_, phase + number * window_);
  const auto within = samples.first(std::min<uint64_t>(samples.size(), end - index));
  std::iota(within.begin(), within.end(), index - begin);
  permute(within, end - begin, round_keys(derived_seed(epoch_seed, number)));
  for (uint64_t& sample : within) sample += begin;
  return within.size();
}

}  // namespace stoker::data::order
