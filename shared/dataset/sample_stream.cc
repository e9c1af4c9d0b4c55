#include "shared/dataset/sample_stream.h"

#include <algorithm>
#include <array>

#include "shared/dataset/permutation.h"

namespace stoker::dataset {
namespace {

constexpr size_t kChunk = 64;

}  // namespace

SampleStream::Item EpochStream::at(uint64_t position, uint64_t attempt) const {
  const uint64_t size = order_.size();
  const uint64_t dataset_epoch = position / size;
  const uint64_t offset = (position % size + attempt % size) % size;
  return {.sample = order_.at(dataset_epoch, offset), .dataset_epoch = dataset_epoch};
}

void EpochStream::at(uint64_t position, std::span<Item> items) const {
  const uint64_t size = order_.size();
  std::array<uint64_t, kChunk> samples;
  while (!items.empty()) {
    const uint64_t dataset_epoch = position / size;
    const uint64_t offset = position % size;
    const size_t count = std::min<uint64_t>({items.size(), kChunk, size - offset});
    order_.at(dataset_epoch, offset, std::span(samples).first(count));
    for (size_t i = 0; i < count; ++i)
      items[i] = {.sample = samples[i], .dataset_epoch = dataset_epoch};
    items = items.subspan(count);
    position += count;
  }
}

SampleStream::Item WeightedStream::at(uint64_t position, uint64_t attempt) const {
  const uint64_t random = derived_seed(derived_seed(seed_, position), attempt);
  return {.sample = table_.sample(random), .dataset_epoch = position};
}

void WeightedStream::at(uint64_t position, std::span<Item> items) const {
  for (Item& use : items) use = at(position++, 0);
}

}  // namespace stoker::dataset
