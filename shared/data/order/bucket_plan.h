// LengthBuckets: groups the samples of a sequence dataset by length, so that the samples of a batch
// have similar lengths and need little padding.
//
// Bucket b contains the samples that fit into its length and not into that of the previous bucket.
// Buckets without samples are omitted. Uses 4 bytes per sample.
//
// Threads: immutable after construction; any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "shared/config/feed_config.h"
#include "shared/data/dataset.h"
#include "shared/data/order/epoch_order.h"

namespace stoker::data::order {

inline constexpr uint64_t kMaxBucketed = uint64_t{1} << 32;  // samples

class LengthBuckets {
 public:
  struct Bucket {
    uint64_t length = 0;  // to which its samples are padded
    uint64_t first = 0;   // index of its first sample in the order of all buckets
    uint64_t size = 0;    // samples; at least 1
  };

  // `lengths` are increasing and at least 1. Those that are not below data.max_length() are
  // ignored; the last bucket has that length. At most kMaxBucketed samples, and `data` must have
  // lengths.
  LengthBuckets(const Dataset& data, std::span<const int64_t> lengths);

  const std::vector<Bucket>& buckets() const { return buckets_; }  // in increasing length
  uint64_t samples() const { return order_.size(); }
  // The index-th sample of a bucket, in increasing order of sample numbers.
  uint64_t sample(size_t bucket, uint64_t index) const {
    return order_[buckets_[bucket].first + index];
  }
  // Fraction of padding if every sample is padded to the length of its bucket, and if every sample
  // is padded to the maximum length.
  double padding() const;
  double padding_without() const;

 private:
  std::vector<Bucket> buckets_;
  std::vector<uint32_t> order_;
  uint64_t max_length_ = 0;
  double own_elements_ = 0;  // total time steps of all samples, without padding
};

// BucketPlan: the bucket and samples of each batch of a run, as a pure function of the ticket.
//
// Each bucket has its own epochs (passes). A pass contains each sample of the bucket once, in its
// own order, split into batches. Epoch e of the run consists of the batches of every bucket that
// end in pass e of the bucket. With last_batch carry_over, bucket b contributes floor((e + 1) n_b /
// B) - floor(e n_b / B) batches to epoch e: the remaining samples of a pass start the first batch
// of a later epoch, so none is dropped permanently. Each epoch has its own order of batches;
// without shuffling, one bucket follows the other.
//
// The epoch of a ticket is found by a binary search over a range proportional to the number of
// buckets, so the cost is about the same for any ticket, past or future.
//
// Threads: any; immutable after construction.
struct BucketPlanOptions {
  std::shared_ptr<const LengthBuckets> buckets;
  uint64_t batch = 1;  // samples, over all ranks
  uint64_t seed = 1;
  config::ShuffleMode shuffle = config::ShuffleMode::kFull;  // or kNone
  config::LastBatchPolicy last_batch = config::LastBatchPolicy::kCarryOver;
};

class BucketPlan {
 public:
  // With last_batch drop, every bucket must contain at least one batch.
  explicit BucketPlan(const BucketPlanOptions& options);

  struct Item {
    uint64_t sample = 0;
    uint64_t dataset_epoch = 0;  // pass over its bucket
  };
  // attempt 0: the sample of the row. Otherwise its attempt-th replacement sample: the samples
  // after it in its pass, then those of the previous buckets, which are shorter.
  Item at(uint64_t ticket, uint64_t row, uint64_t attempt) const;
  size_t bucket_of(uint64_t ticket) const { return slot_at(ticket).bucket; }
  uint64_t epoch_of(uint64_t ticket) const;
  // The number of batches of the first epoch; without carry_over that of each.
  uint64_t batches_of_epoch() const { return batches_before(1); }

 private:
  struct BatchSlot {
    uint64_t epoch = 0;
    size_t bucket = 0;
    uint64_t number = 0;  // index among the batches of the bucket, over all epochs
  };
  // Number of batches before an epoch: of one bucket, and of all buckets.
  uint64_t batches_before(size_t bucket, uint64_t epoch) const;
  uint64_t batches_before(uint64_t epoch) const;
  BatchSlot slot_at(uint64_t ticket) const;

  const BucketPlanOptions options_;
  const uint64_t turn_seed_;
  std::deque<EpochOrder> orders_;  // per bucket; a deque, because EpochOrder cannot be moved
};

}  // namespace stoker::data::order
