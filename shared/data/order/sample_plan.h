// SamplePlan: the samples of each batch, as a pure function of settings and ticket.
//
// Ticket t is the t-th micro-batch of the run, over all ranks. Row i of rank r in it is position p
// = t * (batch * world) + r * batch + i of one infinite sequence. So the order of a run is the same
// for any number of ranks with the same global batch size. The sequence is one of:
//
// - one dataset, or a concatenation: epoch p / size, each in its own order (EpochOrder);
// - a weighted mixture: a schedule selects the dataset of each position (MixtureSchedule), and each
//   dataset has its own epochs;
// - a dataset with sample weights: each position is sampled independently, with replacement;
// - a sequence dataset in length buckets: each batch contains samples of one bucket (BucketPlan).
//
// Everything is computed, so the cost is the same for any ticket, past or future. Resuming needs
// only one number, and the number of workers has no effect.
//
// Threads: any; immutable except for the cached shard orders (epoch_order.h).
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
// The positions of a stream, which has no number of samples: more than a run takes.
inline constexpr uint64_t kStreamPositions = uint64_t{1} << 60;

// One dataset of a mixture or concatenation, or the only one.
struct PlannedDataset {
  uint64_t size = 1;                   // samples; of a stream kStreamPositions
  uint64_t repeat = 1;                 // number of times each sample occurs per epoch
  double weight = 0;                   // weighted mixture: relative frequency
  std::vector<double> sample_weights;  // weighted sampling: one weight per sample
  bool keeps_order = false;            // weighted mixture: never shuffled, as a stream
};

struct PlanOptions {
  uint64_t size = 1;   // samples of the dataset; at most kMaxPlanSize
  uint64_t batch = 1;  // samples per ticket, for one rank
  uint64_t seed = 1;
  config::ShuffleMode shuffle = config::ShuffleMode::kFull;
  uint64_t window = 1;               // shuffle block
  uint64_t shards_open = 1;          // shuffle shards
  std::vector<uint64_t> shard_ends;  // shuffle shards: as Dataset::shard_ends(); empty: one shard
  config::LastBatchPolicy last_batch = config::LastBatchPolicy::kCarryOver;
  // Start of this plan: `first_ticket` starts `first_epoch`. Not 0 if the plan continues that of an
  // earlier, smaller dataset version.
  uint64_t first_ticket = 0;
  uint64_t first_epoch = 0;
  uint64_t rank = 0;  // of `world`
  uint64_t world = 1;
  // Empty: one dataset with default settings. Otherwise the sizes add up to `size`, and either all
  // or none have a weight. With weights of either kind: last_batch kCarryOver, and no repeat.
  std::vector<PlannedDataset> datasets;
  // Null: batches mix samples of all lengths. Otherwise shuffle is kFull or kNone, there is one
  // dataset without repeat and weights, first_ticket is 0, and with last_batch drop every bucket
  // must contain at least one global batch.
  std::shared_ptr<const LengthBuckets> maybe_buckets = nullptr;
};

struct PlannedSample {
  uint64_t sample = 0;
  uint64_t epoch = 0;  // of the run
  // Pass over the dataset of the sample: equal to the epoch for a single dataset without repeat,
  // otherwise a number that is different for each use of the sample.
  uint64_t dataset_epoch = 0;
};

class SamplePlan {
 public:
  // With last_batch drop, an epoch must contain at least one global batch.
  explicit SamplePlan(const PlanOptions& options);
  ~SamplePlan();
  SamplePlan(SamplePlan&&) noexcept;
  SamplePlan& operator=(SamplePlan&&) noexcept;

  const PlanOptions& options() const { return options_; }  // without the sample weights
  // The sample of row `row` in ticket `ticket`, which must not precede first_ticket.
  PlannedSample at(uint64_t ticket, uint64_t row) const;
  // The samples of the rows from `first_row`. Faster than single lookups.
  void at(uint64_t ticket, uint64_t first_row, std::span<PlannedSample> planned) const;
  // The replacement sample if the sample and its first `attempt - 1` replacements could not be
  // read. It is the attempt-th sample after it in the same epoch of the same dataset (wrapping
  // around), or another random one with sample weights. With buckets, the samples of the previous
  // buckets follow. attempt >= 1.
  PlannedSample replacement(uint64_t ticket, uint64_t row, uint64_t attempt) const;
  // The bucket of the ticket's batch, if there are buckets.
  size_t bucket_of(uint64_t ticket) const;
  uint64_t epoch_of(uint64_t ticket) const;            // of its first row on rank 0
  uint64_t epoch_size() const { return epoch_size_; }  // positions
  // Tickets per epoch; no whole number if the last batch of an epoch also has samples of the next one.
  double epoch_tickets() const;
  // Epochs of the run before `ticket`, in fractions.
  double epochs_before(uint64_t ticket) const;
  // The key of all random choices that are made while the sample is read.
  RandomKey random_key(const PlannedSample& planned) const {
    return {.seed = options_.seed, .epoch = planned.dataset_epoch, .sample = planned.sample};
  }

 private:
  // Range of a dataset among all samples and within an epoch.
  struct Segment {
    uint64_t first = 0;      // first sample
    uint64_t size = 1;       // number of samples
    uint64_t repeat = 1;     // repetitions per epoch
    uint64_t epoch_end = 0;  // position after its last one in an unshuffled epoch
  };

  void plan_buckets();
  void add_segments();
  std::vector<uint64_t> repeated_shard_ends(const Segment& segment) const;
  std::unique_ptr<const SampleStream> make_concat_stream() const;
  std::unique_ptr<const SampleStream> make_stream(size_t dataset) const;
  bool has_single_stream() const;  // positions of the stream map directly to samples
  uint64_t position(uint64_t ticket, uint64_t row) const;

  PlanOptions options_;
  uint64_t global_batch_ = 1;
  uint64_t epoch_size_ = 1;
  uint64_t epoch_tickets_ = 0;     // last_batch drop, pad: tickets per epoch
  std::vector<Segment> segments_;  // per dataset
  std::unique_ptr<const MixtureSchedule> maybe_schedule_;  // weighted mixture only
  // A single one, or one per dataset of a weighted mixture.
  std::vector<std::unique_ptr<const SampleStream>> streams_;
  std::unique_ptr<const BucketPlan> maybe_buckets_;  // if set, the members above are not used
};

}  // namespace stoker::data::order
