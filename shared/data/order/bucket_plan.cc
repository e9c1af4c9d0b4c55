#include "shared/data/order/bucket_plan.h"

#include <algorithm>
#include <cassert>

#include "shared/data/order/permutation.h"

namespace stoker::data::order {

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
    ends[bucket] = first;  // index of its next sample
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

namespace {

__extension__ using Wide = unsigned __int128;
constexpr uint64_t kTurnSeed = ~uint64_t{1};  // no bucket has this number

}  // namespace

BucketPlan::BucketPlan(const BucketPlanOptions& options)
    : options_(options), turn_seed_(derived_seed(options.seed, kTurnSeed)) {
  assert(options.buckets != nullptr && options.batch >= 1);
  assert(options.shuffle == config::ShuffleMode::kFull ||
         options.shuffle == config::ShuffleMode::kNone);
  const auto& buckets = options.buckets->buckets();
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    assert(options.last_batch != config::LastBatchPolicy::kDrop ||
           buckets[bucket].size >= options.batch);
    // Separate seeds: otherwise two buckets of the same size would have the same order.
    orders_.emplace_back(OrderOptions{.size = buckets[bucket].size,
                                      .seed = derived_seed(options.seed, bucket),
                                      .shuffle = options.shuffle,
                                      .window = 1,
                                      .shards_open = 1,
                                      .shard_ends = {}});
  }
}

uint64_t BucketPlan::batches_before(size_t bucket, uint64_t epoch) const {
  const uint64_t size = orders_[bucket].size(), batch = options_.batch;
  switch (options_.last_batch) {
    case config::LastBatchPolicy::kCarryOver:
      return static_cast<uint64_t>(Wide{epoch} * size / batch);
    case config::LastBatchPolicy::kDrop:
      return epoch * (size / batch);
    case config::LastBatchPolicy::kPad:
      return epoch * (size / batch + (size % batch == 0 ? 0 : 1));
  }
  return 0;
}

uint64_t BucketPlan::batches_before(uint64_t epoch) const {
  uint64_t batches = 0;
  for (size_t bucket = 0; bucket < orders_.size(); ++bucket)
    batches += batches_before(bucket, epoch);
  return batches;
}

// The last epoch that starts at or before `ticket`.
uint64_t BucketPlan::epoch_of(uint64_t ticket) const {
  // Number of epochs whose samples fill at most this many batches.
  const uint64_t samples = options_.buckets->samples();
  const auto epochs_of = [&](uint64_t batches) {
    return static_cast<uint64_t>(Wide{batches} * options_.batch / samples);
  };
  if (options_.last_batch != config::LastBatchPolicy::kCarryOver) return ticket / batches_before(1);
  uint64_t low = epochs_of(ticket);                        // batches_before(low) <= ticket
  uint64_t high = epochs_of(ticket + orders_.size()) + 2;  // > ticket
  assert(batches_before(low) <= ticket && batches_before(high) > ticket);
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (batches_before(middle) <= ticket ? low : high) = middle;
  }
  return low;
}

BucketPlan::BatchSlot BucketPlan::slot_at(uint64_t ticket) const {
  BatchSlot slot{.epoch = epoch_of(ticket)};
  const uint64_t before = batches_before(slot.epoch);
  uint64_t offset = ticket - before;
  if (options_.shuffle != config::ShuffleMode::kNone)
    offset = permuted(offset, batches_before(slot.epoch + 1) - before,
                      round_keys(derived_seed(turn_seed_, slot.epoch)));
  for (;; ++slot.bucket) {
    assert(slot.bucket < orders_.size());
    const uint64_t first = batches_before(slot.bucket, slot.epoch);
    const uint64_t batches = batches_before(slot.bucket, slot.epoch + 1) - first;
    slot.number = first + offset;
    if (offset < batches) return slot;
    offset -= batches;
  }
}

BucketPlan::Item BucketPlan::at(uint64_t ticket, uint64_t row, uint64_t attempt) const {
  assert(row < options_.batch);
  const BatchSlot slot = slot_at(ticket);
  size_t bucket = slot.bucket;
  const uint64_t size = orders_[bucket].size();
  const bool spans = options_.last_batch == config::LastBatchPolicy::kCarryOver;
  // carry_over: the position counts over all passes of the bucket. Otherwise it is within the pass
  // of the epoch.
  const uint64_t batches = spans ? 0 : batches_before(bucket, slot.epoch);
  const Wide position = Wide{slot.number - batches} * options_.batch + row;
  const auto dataset_epoch = spans ? static_cast<uint64_t>(position / size) : slot.epoch;
  // With last_batch pad, wraps to the start of the pass.
  const auto offset = static_cast<uint64_t>(position % size);
  for (; attempt >= orders_[bucket].size() && bucket > 0; --bucket)
    attempt -= orders_[bucket].size();
  const uint64_t among = orders_[bucket].size();
  const uint64_t found = (offset % among + attempt % among) % among;
  return {.sample = options_.buckets->sample(bucket, orders_[bucket].at(dataset_epoch, found)),
          .dataset_epoch = dataset_epoch};
}

}  // namespace stoker::data::order
