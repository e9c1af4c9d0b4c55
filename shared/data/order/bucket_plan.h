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

// BucketPlan: which bucket's samples each batch of a run holds, as a pure function of its ticket.
//
// Each bucket has epochs (passes) of its own, in each of which its samples come once, in an order of
// their own, cut into batches. In epoch e of the run come those batches of every bucket that end in
// its pass e: with last_batch carry_over, bucket b has floor((e + 1) n_b / B) - floor(e n_b / B) of them,
// so what a pass leaves begins the first batch of a later epoch, and nothing is left out for ever.
// The batches of an epoch come in an order of its own; without shuffle bucket after bucket.
//
// A ticket's epoch is found by a binary search over as many epochs as there are buckets' batches, so
// any ticket, past or future, costs about the same.
//
// Threads: any; constant.
struct BucketPlanOptions {
  std::shared_ptr<const LengthBuckets> buckets;
  uint64_t batch = 1;  // samples, of all ranks
  uint64_t seed = 1;
  config::ShuffleMode shuffle = config::ShuffleMode::kFull;  // or kNone
  config::LastBatchPolicy last_batch = config::LastBatchPolicy::kCarryOver;
};

class BucketPlan {
 public:
  // With drop, a batch must fit into every bucket.
  explicit BucketPlan(const BucketPlanOptions& options);

  struct Item {
    uint64_t sample = 0;
    uint64_t dataset_epoch = 0;  // over its bucket
  };
  // attempt 0: the sample of the row. Else its attempt-th stand-in: the samples that follow it in its
  // pass, then those of the buckets before, which are shorter.
  Item at(uint64_t ticket, uint64_t row, uint64_t attempt) const;
  size_t bucket_of(uint64_t ticket) const { return slot_at(ticket).bucket; }
  uint64_t epoch_of(uint64_t ticket) const;

 private:
  struct BatchSlot {
    uint64_t epoch = 0;
    size_t bucket = 0;
    uint64_t number = 0;  // of the bucket's batches, over all epochs
  };
  // Batches before an epoch: of a bucket, and of all.
  uint64_t batches_before(size_t bucket, uint64_t epoch) const;
  uint64_t batches_before(uint64_t epoch) const;
  BatchSlot slot_at(uint64_t ticket) const;

  const BucketPlanOptions options_;
  const uint64_t turn_seed_;
  std::deque<EpochOrder> orders_;  // of the buckets; they stay where they are
};

}  // namespace stoker::data::order
