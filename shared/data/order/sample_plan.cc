#include "shared/data/order/sample_plan.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "shared/data/order/alias_table.h"
#include "shared/data/order/bucket_plan.h"
#include "shared/data/order/epoch_order.h"
#include "shared/data/order/mixture_schedule.h"
#include "shared/data/order/permutation.h"
#include "shared/data/sample_range.h"

namespace stoker::data::order {

// SampleStream: the infinite sequence of samples of one dataset.
//
// Threads: any.
class SampleStream {
 public:
  struct Item {
    uint64_t sample = 0;
    uint64_t dataset_epoch = 0;  // distinguishes the uses of a sample
  };

  virtual ~SampleStream() = default;
  // attempt 0: the sample at the position. Otherwise its attempt-th replacement sample.
  virtual Item at(uint64_t position, uint64_t attempt) const = 0;
  // The samples at consecutive positions from `position`.
  virtual void at(uint64_t position, std::span<Item> items) const = 0;
};

// Every sample once per pass; the replacement sample is the next one of the same pass.
class EpochStream final : public SampleStream {
 public:
  explicit EpochStream(const OrderOptions& options) : order_(options) {}
  Item at(uint64_t position, uint64_t attempt) const override;
  void at(uint64_t position, std::span<Item> items) const override;

 private:
  const EpochOrder order_;
};

// Each position is sampled by weight with replacement; the replacement sample is another random
// one.
class WeightedStream final : public SampleStream {
 public:
  WeightedStream(std::span<const double> weights, uint64_t seed) : table_(weights), seed_(seed) {}
  Item at(uint64_t position, uint64_t attempt) const override;
  void at(uint64_t position, std::span<Item> items) const override;

 private:
  const AliasTable table_;
  const uint64_t seed_;
};

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

namespace {

constexpr uint64_t kScheduleSeed = ~uint64_t{0};  // not a dataset index
constexpr size_t kAtOnce = 64;                    // rows

bool is_weighted(const PlanOptions& options) {
  return !options.datasets.empty() && options.datasets.front().weight > 0;
}

}  // namespace

SamplePlan::SamplePlan(const PlanOptions& options)
    : options_(options), global_batch_(options.batch * options.world) {
  assert(options.size >= 1 && options.size <= kMaxPlanSize && "a plan needs at least one sample");
  assert(options.batch >= 1 && "a batch holds at least one sample");
  assert(options.rank < options.world);
  if (options.maybe_buckets != nullptr) {
    plan_buckets();
    return;
  }
  add_segments();
  if (is_weighted(options)) {
    std::vector<double> weights;
    for (const PlannedDataset& dataset : options.datasets) weights.push_back(dataset.weight);
    maybe_schedule_ =
        std::make_unique<const MixtureSchedule>(weights, derived_seed(options.seed, kScheduleSeed));
    for (size_t dataset = 0; dataset < options.datasets.size(); ++dataset)
      streams_.push_back(make_stream(dataset));
  } else {
    streams_.push_back(make_concat_stream());
  }
  for (PlannedDataset& dataset : options_.datasets)  // the alias tables contain them
    dataset.sample_weights = std::vector<double>();
  if (options.last_batch == config::LastBatchPolicy::kDrop)
    epoch_tickets_ = epoch_size_ / global_batch_;
  if (options.last_batch == config::LastBatchPolicy::kPad)
    epoch_tickets_ = (epoch_size_ + global_batch_ - 1) / global_batch_;
  assert(options.last_batch == config::LastBatchPolicy::kCarryOver || epoch_tickets_ >= 1);
}

SamplePlan::~SamplePlan() = default;
SamplePlan::SamplePlan(SamplePlan&&) noexcept = default;
SamplePlan& SamplePlan::operator=(SamplePlan&&) noexcept = default;

// ---- Setup

void SamplePlan::plan_buckets() {
  assert(options_.maybe_buckets->samples() == options_.size && options_.first_ticket == 0);
  epoch_size_ = options_.size;
  maybe_buckets_ =
      std::make_unique<const BucketPlan>(BucketPlanOptions{.buckets = options_.maybe_buckets,
                                                           .batch = global_batch_,
                                                           .seed = options_.seed,
                                                           .shuffle = options_.shuffle,
                                                           .last_batch = options_.last_batch});
}

void SamplePlan::add_segments() {
  std::vector<PlannedDataset> one(1);
  one.front().size = options_.size;
  uint64_t first = 0;
  epoch_size_ = 0;
  for (const PlannedDataset& dataset : options_.datasets.empty() ? one : options_.datasets) {
    epoch_size_ += dataset.size * dataset.repeat;
    segments_.push_back(
        {.first = first, .size = dataset.size, .repeat = dataset.repeat, .epoch_end = epoch_size_});
    first += dataset.size;
  }
  assert(first == options_.size && epoch_size_ <= kMaxPlanSize);
}

// Ends of the shards of one dataset, relative to its first sample and repeated like the dataset.
std::vector<uint64_t> SamplePlan::repeated_shard_ends(const Segment& segment) const {
  const auto once = shard_ends_within(
      options_.shard_ends, {.begin = segment.first, .end = segment.first + segment.size});
  std::vector<uint64_t> own;
  for (uint64_t lap = 0; lap < segment.repeat; ++lap)
    for (const uint64_t end : once) own.push_back(lap * segment.size + end);
  return own;
}

std::unique_ptr<const SampleStream> SamplePlan::make_concat_stream() const {
  if (segments_.size() == 1 && !options_.datasets.empty() &&
      !options_.datasets.front().sample_weights.empty())
    return std::make_unique<WeightedStream>(options_.datasets.front().sample_weights,
                                            options_.seed);
  OrderOptions order{.size = epoch_size_,
                     .seed = options_.seed,
                     .shuffle = options_.shuffle,
                     .window = options_.window,
                     .shards_open = options_.shards_open,
                     .shard_ends = {}};
  uint64_t begin = 0;
  for (const Segment& segment : segments_) {
    if (options_.shuffle == config::ShuffleMode::kShards)
      for (const uint64_t end : repeated_shard_ends(segment))
        order.shard_ends.push_back(begin + end);
    begin = segment.epoch_end;
  }
  return std::make_unique<EpochStream>(order);
}

std::unique_ptr<const SampleStream> SamplePlan::make_stream(size_t dataset) const {
  // Separate seeds: otherwise two datasets of the same size would have the same order.
  const uint64_t seed = derived_seed(options_.seed, dataset);
  const PlannedDataset& planned = options_.datasets[dataset];
  assert(planned.weight > 0 && planned.repeat == 1);
  if (!planned.sample_weights.empty())
    return std::make_unique<WeightedStream>(planned.sample_weights, seed);
  const config::ShuffleMode shuffle =
      planned.keeps_order ? config::ShuffleMode::kNone : options_.shuffle;
  OrderOptions order{.size = planned.size,
                     .seed = seed,
                     .shuffle = shuffle,
                     .window = options_.window,
                     .shards_open = options_.shards_open,
                     .shard_ends = {}};
  if (shuffle == config::ShuffleMode::kShards)
    order.shard_ends = repeated_shard_ends(segments_[dataset]);
  return std::make_unique<EpochStream>(order);
}

// ---- Queries

uint64_t SamplePlan::position(uint64_t ticket, uint64_t row) const {
  assert(row < options_.batch);
  const uint64_t global_row = options_.rank * options_.batch + row;
  ticket -= options_.first_ticket;
  if (epoch_tickets_ == 0)
    return options_.first_epoch * epoch_size_ + ticket * global_batch_ + global_row;
  ticket += options_.first_epoch * epoch_tickets_;
  const uint64_t offset = ticket % epoch_tickets_ * global_batch_ + global_row;
  return ticket / epoch_tickets_ * epoch_size_ +
         offset % epoch_size_;  // last_batch pad: wraps to the start of the epoch
}

PlannedSample SamplePlan::at(uint64_t ticket, uint64_t row) const {
  return replacement(ticket, row, 0);
}

bool SamplePlan::has_single_stream() const {
  return !maybe_buckets_ && !maybe_schedule_ && segments_.size() == 1 &&
         segments_.front().repeat == 1;
}

void SamplePlan::at(uint64_t ticket, uint64_t first_row, std::span<PlannedSample> planned) const {
  std::array<SampleStream::Item, kAtOnce> items;
  while (!planned.empty()) {
    const size_t count = std::min(planned.size(), kAtOnce);
    const uint64_t first = has_single_stream() ? position(ticket, first_row) : 0;
    // The positions are consecutive unless a last batch is filled from the start of the epoch.
    if (!has_single_stream() || position(ticket, first_row + count - 1) != first + count - 1) {
      for (size_t i = 0; i < count; ++i) planned[i] = at(ticket, first_row + i);
    } else {
      streams_.front()->at(first, std::span(items).first(count));
      const uint64_t epoch = first / epoch_size_;
      const uint64_t rest = epoch_size_ - first % epoch_size_;  // positions left in that epoch
      for (size_t i = 0; i < count; ++i)
        planned[i] = {.sample = items[i].sample,
                      .epoch = i < rest ? epoch : (first + i) / epoch_size_,
                      .dataset_epoch = items[i].dataset_epoch};
    }
    planned = planned.subspan(count);
    first_row += count;
  }
}

PlannedSample SamplePlan::replacement(uint64_t ticket, uint64_t row, uint64_t attempt) const {
  if (maybe_buckets_) {
    const BucketPlan::Item use =
        maybe_buckets_->at(ticket, options_.rank * options_.batch + row, attempt);
    return {.sample = use.sample, .epoch = use.dataset_epoch, .dataset_epoch = use.dataset_epoch};
  }
  const uint64_t offset = position(ticket, row);
  const uint64_t epoch = offset / epoch_size_;
  if (maybe_schedule_) {
    const MixtureSlot turn = maybe_schedule_->at(offset);
    const SampleStream::Item use = streams_[turn.component]->at(turn.position, attempt);
    return {.sample = segments_[turn.component].first + use.sample,
            .epoch = epoch,
            .dataset_epoch = use.dataset_epoch};
  }
  const SampleStream::Item use = streams_.front()->at(offset, attempt);
  if (segments_.size() == 1 && segments_.front().repeat == 1)
    return {.sample = use.sample, .epoch = epoch, .dataset_epoch = use.dataset_epoch};
  const auto segment = std::upper_bound(
      segments_.begin(), segments_.end(), use.sample,
      [](uint64_t sample, const Segment& each) { return sample < each.epoch_end; });
  const uint64_t before = use.sample - (segment->epoch_end - segment->size * segment->repeat);
  return {.sample = segment->first + before % segment->size,
          .epoch = epoch,
          .dataset_epoch = epoch * segment->repeat + before / segment->size};
}

size_t SamplePlan::bucket_of(uint64_t ticket) const {
  return maybe_buckets_ ? maybe_buckets_->bucket_of(ticket) : 0;
}

double SamplePlan::epoch_tickets() const {
  const bool has_whole_batches = options_.last_batch != config::LastBatchPolicy::kCarryOver;
  if (maybe_buckets_ && has_whole_batches)
    return static_cast<double>(maybe_buckets_->batches_of_epoch());
  if (has_whole_batches) return static_cast<double>(epoch_tickets_);
  return static_cast<double>(epoch_size_) / static_cast<double>(global_batch_);
}

double SamplePlan::epochs_before(uint64_t ticket) const {
  const double since = static_cast<double>(ticket) - static_cast<double>(options_.first_ticket);
  return static_cast<double>(options_.first_epoch) + since / epoch_tickets();
}

uint64_t SamplePlan::epoch_of(uint64_t ticket) const {
  if (maybe_buckets_) return maybe_buckets_->epoch_of(ticket);
  const uint64_t since = ticket - options_.first_ticket;
  return options_.first_epoch +
         (epoch_tickets_ != 0 ? since / epoch_tickets_ : since * global_batch_ / epoch_size_);
}

}  // namespace stoker::data::order
