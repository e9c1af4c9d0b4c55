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
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "shared/config/feed_config.h"
#include "shared/dataset/epoch_order.h"
#include "shared/dataset/length_buckets.h"

namespace stoker::dataset {

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

}  // namespace stoker::dataset
