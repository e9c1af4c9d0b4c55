#include "shared/dataset/epoch_order.h"

#include <algorithm>
#include <cassert>
#include <numeric>

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
  if (shuffle_ == config::ShuffleMode::kBlock && window_ >= size_)
    shuffle_ = config::ShuffleMode::kFull;
  if (shuffle_ != config::ShuffleMode::kShards) return;
  if (settings.shard_ends.size() <= settings.shards_open) {
    shuffle_ = config::ShuffleMode::kFull;
  } else {
    assert(settings.shard_ends.back() == size_);
    maybe_shards_.emplace(settings.shard_ends, settings.shards_open, seed_);
  }
}

uint64_t EpochOrder::at(uint64_t epoch, uint64_t place) const {
  uint64_t sample = 0;
  at(epoch, place, {&sample, 1});
  return sample;
}

void EpochOrder::at(uint64_t epoch, uint64_t place, std::span<uint64_t> samples) const {
  assert(place < size_ && samples.size() <= size_ - place);
  switch (shuffle_) {
    case config::ShuffleMode::kFull:
      std::iota(samples.begin(), samples.end(), place);
      permute(samples, size_, round_keys(derived_seed(seed_, epoch)));
      break;
    case config::ShuffleMode::kNone:
      std::iota(samples.begin(), samples.end(), place);
      break;
    case config::ShuffleMode::kBlock:
      while (!samples.empty()) {
        const size_t found = in_window(epoch, place, samples);
        samples = samples.subspan(found);
        place += found;
      }
      break;
    case config::ShuffleMode::kShards:
      const auto order = maybe_shards_->of(epoch);
      for (uint64_t& sample : samples) sample = order->at(place++);
      break;
  }
}

size_t EpochOrder::in_window(uint64_t epoch, uint64_t place, std::span<uint64_t> samples) const {
  const uint64_t epoch_seed = derived_seed(seed_, epoch);
  // Window 0 is cut short, so that the borders, over which nothing is mixed, move from epoch to
  // epoch.
  const uint64_t phase = derived_seed(epoch_seed, kPhase) % window_;
  const uint64_t number = (place + window_ - phase) / window_;
  const uint64_t begin = number == 0 ? 0 : phase + (number - 1) * window_;
  const uint64_t end = std::min(size_, phase + number * window_);
  const auto within = samples.first(std::min<uint64_t>(samples.size(), end - place));
  std::iota(within.begin(), within.end(), place - begin);
  permute(within, end - begin, round_keys(derived_seed(epoch_seed, number)));
  for (uint64_t& sample : within) sample += begin;
  return within.size();
}

}  // namespace stoker::dataset
