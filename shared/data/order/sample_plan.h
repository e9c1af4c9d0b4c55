// SamplePlan: which samples a batch holds, as a pure function.
//
// Ticket t is the t-th micro-batch of the run, over all ranks; row i of rank r in it is position
// p = t * (batch * world) + r * batch + i of one endless sequence. So the order of the run is the
// same for every number of ranks with the same global batch. What the sequence is:
//
// - one set, or several one after the other: epoch p / size, in an order of its own (EpochOrder);
// - a weighted mixture: a schedule says which set is next (MixtureSchedule), and each set has epochs
//   of its own;
// - a set with sample weights: position p is a draw of its own, with replacement;
// - a set of sequences in buckets by length: batches of one bucket each (BucketPlan).
//
// Each is computed, so any ticket, past or future, costs the same, resume needs one number, and the
// number of readers changes nothing.
//
// Threads:  any; constant but for the shards' order (epoch_order.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shared/config/feed_config.h"
#include "shared/data/dataset.h"

namespace stoker::data::order {

class BucketPlan;
class LengthBuckets;
class MixtureSchedule;
class SampleStream;

inline constexpr uint64_t kMaxPlanSize = uint64_t{1} << 62;

// One set of a mixture, or the only one.
struct PlannedDataset {
  uint64_t size = 1;                   // samples
  uint64_t repeat = 1;                 // how often each comes an epoch
  double weight = 0;                   // of a weighted mixture: its share
  std::vector<double> sample_weights;  // of a set that is drawn from: one a sample
};

struct PlanOptions {
  uint64_t size = 1;   // samples of the data set; at most kMaxPlanSize
  uint64_t batch = 1;  // samples a ticket, of one rank
  uint64_t seed = 1;
  config::ShuffleMode shuffle = config::ShuffleMode::kFull;
  uint64_t window = 1;               // block
  uint64_t shards_open = 1;          // shards
  std::vector<uint64_t> shard_ends;  // shards: as Dataset::shard_ends(); empty: one shard
  config::LastBatchPolicy last_batch = config::LastBatchPolicy::kCarryOver;
  // Where this plan begins: the first row of this ticket is the beginning of this epoch. Others go
  // on from a plan for a smaller set.
  uint64_t first_ticket = 0;
  uint64_t first_epoch = 0;
  uint64_t rank = 0;  // of `world`
  uint64_t world = 1;
  // Empty: one set without more to say. Otherwise their sizes add up to `size`, and either all have
  // a weight or none. With weights of any sort: last_batch kCarryOver, and no repeat.
  std::vector<PlannedDataset> datasets;
  // Null: batches of any samples. Otherwise shuffle is kFull or kNone, with drop a global batch fits
  // into each bucket, and there is one set, without repeat and weights, from ticket 0 on.
  std::shared_ptr<const LengthBuckets> maybe_buckets = nullptr;
};

struct PlannedSample {
  uint64_t sample = 0;
  uint64_t epoch = 0;  // of the run
  // The pass over the sample's own set: the epoch where there is one set that comes once, otherwise
  // a number that tells its uses apart.
  uint64_t dataset_epoch = 0;
};

class SamplePlan {
 public:
  // With drop, a global batch must fit into an epoch.
  explicit SamplePlan(const PlanOptions& options);
  ~SamplePlan();
  SamplePlan(SamplePlan&&) noexcept;
  SamplePlan& operator=(SamplePlan&&) noexcept;

  const PlanOptions& options() const { return options_; }  // without the sample weights
  // The sample for row `row` of ticket `ticket`, which is not before the first.
  PlannedSample at(uint64_t ticket, uint64_t row) const;
  // Those for the rows from `first_row` on, for less than one by one.
  void at(uint64_t ticket, uint64_t first_row, std::span<PlannedSample> planned) const;
  // What takes its place when it and the `attempt - 1` stand-ins before could not be read: the
  // attempt-th sample that follows it in the same epoch of the same set's order (wrapping round),
  // or another draw; of a bucket, then those of the buckets before. attempt >= 1.
  PlannedSample replacement(uint64_t ticket, uint64_t row, uint64_t attempt) const;
  // With buckets, whose samples the ticket's batch has.
  size_t bucket_of(uint64_t ticket) const;
  uint64_t epoch_of(uint64_t ticket) const;            // of its first row on rank 0
  uint64_t epoch_size() const { return epoch_size_; }  // positions
  // What random choices while reading it depend on.
  RandomKey random_key(const PlannedSample& planned) const {
    return {.seed = options_.seed, .epoch = planned.dataset_epoch, .sample = planned.sample};
  }

 private:
  // Where the samples of a set lie, in the data set and in an epoch.
  struct Segment {
    uint64_t first = 0;      // sample
    uint64_t size = 1;       // samples
    uint64_t repeat = 1;     // times
    uint64_t epoch_end = 0;  // place after its last one, were the epoch in order
  };

  void plan_buckets();
  void add_segments();
  std::vector<uint64_t> repeated_shard_ends(const Segment& segment) const;
  std::unique_ptr<const SampleStream> make_concat_stream() const;
  std::unique_ptr<const SampleStream> make_stream(size_t dataset) const;
  bool has_single_stream() const;  // whose places are samples
  uint64_t position(uint64_t ticket, uint64_t row) const;

  PlanOptions options_;
  uint64_t global_batch_ = 1;
  uint64_t epoch_size_ = 1;
  uint64_t epoch_tickets_ = 0;                                // drop, pad
  std::vector<Segment> segments_;                             // of the sets
  std::unique_ptr<const MixtureSchedule> maybe_schedule_;     // a weighted mixture
  std::vector<std::unique_ptr<const SampleStream>> streams_;  // one; of each set with a schedule
  std::unique_ptr<const BucketPlan> maybe_buckets_;           // then nothing of the above counts
};

}  // namespace stoker::data::order
