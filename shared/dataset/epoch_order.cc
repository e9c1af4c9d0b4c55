#include "shared/dataset/epoch_order.h"

#include <algorithm>
#include <cassert>

#include "shared/dataset/permutation.h"

namespace stoker::dataset {
namespace {

constexpr uint64_t kPhase = ~uint64_t{0};  // no window has this number

}  // namespace

EpochOrder::EpochOrder(const OrderSettings& settings)
    : size_(settings.size),
      seed_(settings.seed),
      window_(settings.window),
      shuffle_(settings.shuffle) {
  assert(size_ >= 1 && window_ >= 1 && settings.shards_open >= 1);
  // What makes no difference is not paid for.
  if (shuffle_ == config::Shuffle::kWindow && window_ >= size_) shuffle_ = config::Shuffle::kFull;
  if (shuffle_ != config::Shuffle::kShards) return;
  if (settings.shard_ends.size() <= settings.shards_open) {
    shuffle_ = config::Shuffle::kFull;
  } else {
    assert(settings.shard_ends.back() == size_);
    maybe_shards_.emplace(settings.shard_ends, settings.shards_open, seed_);
  }
}

uint64_t EpochOrder::at(uint64_t epoch, uint64_t place) const {
  assert(place < size_);
  switch (shuffle_) {
    case config::Shuffle::kFull:
      return permuted(place, size_, round_keys(derived_seed(seed_, epoch)));
    case config::Shuffle::kOff:
      return place;
    case config::Shuffle::kWindow:
      return in_window(epoch, place);
    case config::Shuffle::kShards:
      return maybe_shards_->of(epoch)->at(place);
  }
  return place;
}

uint64_t EpochOrder::in_window(uint64_t epoch, uint64_t place) const {
  const uint64_t epoch_seed = derived_seed(seed_, epoch);
  // Window 0 is cut short, so that the borders, over which nothing is mixed, move from epoch to
  // epoch.
  const uint64_t phase = derived_seed(epoch_seed, kPhase) % window_;
  const uint64_t number = (place + window_ - phase) / window_;
  const uint64_t begin = number == 0 ? 0 : phase + (number - 1) * window_;
  const uint64_t end = std::min(size_, phase + number * window_);
  const RoundKeys keys = round_keys(derived_seed(epoch_seed, number));
  return begin + permuted(place - begin, end - begin, keys);
}

}  // namespace stoker::dataset
