// LengthBuckets: the samples of a set of sequences by how long they are, so that a batch can hold
// samples of about one length and little padding.
//
// Bucket b has the samples that are not longer than its length, and longer than that of the bucket
// before. Buckets without samples are left out. Costs 4 bytes a sample.
//
// Threads: immutable after construction; any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/dataset/dataset.h"

namespace stoker::dataset {

inline constexpr uint64_t kMaxBucketed = uint64_t{1} << 32;  // samples

class LengthBuckets {
 public:
  struct Bucket {
    uint64_t length = 0;  // that its samples are padded to
    uint64_t first = 0;   // of its samples, among those of all buckets
    uint64_t size = 0;    // samples; at least 1
  };

  // `lengths` rise, and are at least 1; the last bucket's is data.longest(), and those that are not
  // below it do not count. At most kMaxBucketed samples, which have lengths.
  LengthBuckets(const Dataset& data, std::span<const int64_t> lengths);

  const std::vector<Bucket>& buckets() const { return buckets_; }  // the shortest first
  uint64_t samples() const { return order_.size(); }
  // The place-th sample of a bucket, in the order of their numbers.
  uint64_t sample(size_t bucket, uint64_t index) const {
    return order_[buckets_[bucket].first + index];
  }
  // What part of the places of all samples, each padded to its bucket's length, is padding; and what
  // part were it, if all were padded to the longest.
  double padding() const;
  double padding_without() const;

 private:
  std::vector<Bucket> buckets_;
  std::vector<uint32_t> order_;
  uint64_t max_length_ = 0;
  double own_elements_ = 0;  // of all samples
};

}  // namespace stoker::dataset
