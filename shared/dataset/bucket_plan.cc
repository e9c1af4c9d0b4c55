#include "shared/dataset/bucket_plan.h"

#include <cassert>

#include "shared/dataset/permutation.h"

namespace stoker::dataset {
namespace {

__extension__ using Wide = unsigned __int128;
constexpr uint64_t kTurnSeed = ~uint64_t{1};  // no bucket has this number

}  // namespace

BucketPlan::BucketPlan(const BucketPlanSettings& settings)
    : settings_(settings), turn_seed_(derived_seed(settings.seed, kTurnSeed)) {
  assert(settings.buckets != nullptr && settings.batch >= 1);
  assert(settings.shuffle == config::ShuffleMode::kFull ||
         settings.shuffle == config::ShuffleMode::kNone);
  const auto& buckets = settings.buckets->buckets();
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    assert(settings.last_batch != config::LastBatchPolicy::kDrop ||
           buckets[bucket].size >= settings.batch);
    // A seed of its own: two buckets of the same size would else come in the same order.
    orders_.emplace_back(OrderSettings{.size = buckets[bucket].size,
                                       .seed = derived_seed(settings.seed, bucket),
                                       .shuffle = settings.shuffle,
                                       .window = 1,
                                       .shards_open = 1,
                                       .shard_ends = {}});
  }
}

uint64_t BucketPlan::batches_before(size_t bucket, uint64_t epoch) const {
  const uint64_t size = orders_[bucket].size(), batch = settings_.batch;
  switch (settings_.last_batch) {
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

// The last epoch before which there are no more batches than `ticket`.
uint64_t BucketPlan::epoch_of(uint64_t ticket) const {
  // Epochs of which all samples, in whole batches, are at most, and at least, as many.
  const uint64_t samples = settings_.buckets->samples();
  const auto epochs_of = [&](uint64_t batches) {
    return static_cast<uint64_t>(Wide{batches} * settings_.batch / samples);
  };
  if (settings_.last_batch != config::LastBatchPolicy::kCarryOver)
    return ticket / batches_before(1);
  uint64_t low = epochs_of(ticket);                        // batches_before(low) <= ticket
  uint64_t high = epochs_of(ticket + orders_.size()) + 2;  // > ticket
  assert(batches_before(low) <= ticket && batches_before(high) > ticket);
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (batches_before(middle) <= ticket ? low : high) = middle;
  }
  return low;
}

BucketPlan::Turn BucketPlan::turn_of(uint64_t ticket) const {
  Turn turn{.epoch = epoch_of(ticket)};
  const uint64_t before = batches_before(turn.epoch);
  uint64_t place = ticket - before;
  if (settings_.shuffle != config::ShuffleMode::kNone)
    place = permuted(place, batches_before(turn.epoch + 1) - before,
                     round_keys(derived_seed(turn_seed_, turn.epoch)));
  for (;; ++turn.bucket) {
    assert(turn.bucket < orders_.size());
    const uint64_t first = batches_before(turn.bucket, turn.epoch);
    const uint64_t batches = batches_before(turn.bucket, turn.epoch + 1) - first;
    turn.number = first + place;
    if (place < batches) return turn;
    place -= batches;
  }
}

BucketPlan::Use BucketPlan::at(uint64_t ticket, uint64_t row, uint64_t attempt) const {
  assert(row < settings_.batch);
  const Turn turn = turn_of(ticket);
  size_t bucket = turn.bucket;
  const uint64_t size = orders_[bucket].size();
  const bool spans = settings_.last_batch == config::LastBatchPolicy::kCarryOver;
  // Of the bucket's samples, pass after pass; or only in the epoch's.
  const uint64_t batches = spans ? 0 : batches_before(bucket, turn.epoch);
  const Wide position = Wide{turn.number - batches} * settings_.batch + row;
  const auto pass = spans ? static_cast<uint64_t>(position / size) : turn.epoch;
  const auto place = static_cast<uint64_t>(position % size);  // pad: from the pass's front
  for (; attempt >= orders_[bucket].size() && bucket > 0; --bucket)
    attempt -= orders_[bucket].size();
  const uint64_t among = orders_[bucket].size();
  const uint64_t found = (place % among + attempt % among) % among;
  return {.sample = settings_.buckets->sample(bucket, orders_[bucket].at(pass, found)),
          .pass = pass};
}

}  // namespace stoker::dataset
