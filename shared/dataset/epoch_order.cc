#include "shared/dataset/epoch_order.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "shared/dataset/permutation.h"

namespace stoker::dataset {
namespace {

constexpr uint64_t kPhase = ~uint64_t{0};  // no window has this number

}  // namespace

EpochOrder::EpochOrder(const OrderOptions& options)
    : size_(options.size), seed_(options.seed), window_(options.window), shuffle_(options.shuffle) {
  assert(size_ >= 1 && window_ >= 1 && options.shards_open >= 1);
  // What makes no difference is not paid for.
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
  // Window 0 is cut short, so that the borders, over which nothing is mixed, move from epoch to
  // epoch.
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

}  // namespace stoker::dataset
