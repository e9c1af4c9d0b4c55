#include "shared/dataset/length_buckets.h"

#include <algorithm>
#include <cassert>

namespace stoker::dataset {

LengthBuckets::LengthBuckets(const Dataset& data, std::span<const int64_t> lengths)
    : max_length_(data.max_length()) {
  assert(data.max_length() > 0 && data.size() <= kMaxBucketed);
  std::vector<uint64_t> borders;
  for (const int64_t length : lengths)
    if (static_cast<uint64_t>(length) < max_length_)
      borders.push_back(static_cast<uint64_t>(length));
  borders.push_back(max_length_);
  const auto bucket_of = [&](uint64_t sample) {
    return static_cast<size_t>(std::ranges::lower_bound(borders, data.length(sample)) -
                               borders.begin());
  };
  std::vector<uint64_t> ends(borders.size());
  for (uint64_t sample = 0; sample < data.size(); ++sample) {
    ++ends[bucket_of(sample)];
    own_elements_ += static_cast<double>(data.length(sample));
  }
  uint64_t first = 0;
  for (size_t bucket = 0; bucket < borders.size(); ++bucket) {
    const uint64_t size = ends[bucket];
    if (size > 0) buckets_.push_back({.length = borders[bucket], .first = first, .size = size});
    ends[bucket] = first;  // where its next sample goes
    first += size;
  }
  order_.resize(data.size());
  for (uint64_t sample = 0; sample < data.size(); ++sample)
    order_[ends[bucket_of(sample)]++] = static_cast<uint32_t>(sample);
}

double LengthBuckets::padding() const {
  double indices = 0;
  for (const Bucket& bucket : buckets_)
    indices += static_cast<double>(bucket.length) * static_cast<double>(bucket.size);
  return 1 - own_elements_ / indices;
}

double LengthBuckets::padding_without() const {
  return 1 - own_elements_ / (static_cast<double>(max_length_) * static_cast<double>(samples()));
}

}  // namespace stoker::dataset
