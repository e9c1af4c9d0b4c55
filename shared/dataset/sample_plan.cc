#include "shared/dataset/sample_plan.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "shared/dataset/bucket_plan.h"
#include "shared/dataset/mixture_schedule.h"
#include "shared/dataset/permutation.h"
#include "shared/dataset/set_sequence.h"
#include "shared/dataset/split.h"

namespace stoker::dataset {
namespace {

constexpr uint64_t kScheduleSeed = ~uint64_t{0};  // no set has this number
constexpr size_t kAtOnce = 64;                    // rows

bool is_weighted(const PlanSettings& settings) {
  return !settings.sets.empty() && settings.sets.front().weight > 0;
}

}  // namespace

SamplePlan::SamplePlan(const PlanSettings& settings)
    : settings_(settings), global_batch_(settings.batch * settings.world) {
  assert(settings.size >= 1 && settings.size <= kMaxPlanSize && "a plan needs at least one sample");
  assert(settings.batch >= 1 && "a batch holds at least one sample");
  assert(settings.rank < settings.world);
  if (settings.maybe_buckets != nullptr) {
    plan_buckets();
    return;
  }
  add_stretches();
  if (is_weighted(settings)) {
    std::vector<double> weights;
    for (const PlannedSet& set : settings.sets) weights.push_back(set.weight);
    maybe_schedule_ = std::make_unique<const MixtureSchedule>(
        weights, derived_seed(settings.seed, kScheduleSeed));
    for (size_t set = 0; set < settings.sets.size(); ++set) sequences_.push_back(sequence_of(set));
  } else {
    sequences_.push_back(sequence_of_all());
  }
  for (PlannedSet& set : settings_.sets)  // the tables say the same
    set.sample_weights = std::vector<double>();
  if (settings.last_batch == config::LastBatchPolicy::kDrop)
    epoch_tickets_ = epoch_size_ / global_batch_;
  if (settings.last_batch == config::LastBatchPolicy::kPad)
    epoch_tickets_ = (epoch_size_ + global_batch_ - 1) / global_batch_;
  assert(settings.last_batch == config::LastBatchPolicy::kCarryOver || epoch_tickets_ >= 1);
}

SamplePlan::~SamplePlan() = default;
SamplePlan::SamplePlan(SamplePlan&&) noexcept = default;
SamplePlan& SamplePlan::operator=(SamplePlan&&) noexcept = default;

// ---- Setting up

void SamplePlan::plan_buckets() {
  assert(settings_.maybe_buckets->samples() == settings_.size && settings_.first_ticket == 0);
  epoch_size_ = settings_.size;
  maybe_buckets_ =
      std::make_unique<const BucketPlan>(BucketPlanSettings{.buckets = settings_.maybe_buckets,
                                                            .batch = global_batch_,
                                                            .seed = settings_.seed,
                                                            .shuffle = settings_.shuffle,
                                                            .last_batch = settings_.last_batch});
}

void SamplePlan::add_stretches() {
  std::vector<PlannedSet> one(1);
  one.front().size = settings_.size;
  uint64_t first = 0;
  epoch_size_ = 0;
  for (const PlannedSet& set : settings_.sets.empty() ? one : settings_.sets) {
    epoch_size_ += set.size * set.repeat;
    stretches_.push_back(
        {.first = first, .size = set.size, .repeat = set.repeat, .epoch_end = epoch_size_});
    first += set.size;
  }
  assert(first == settings_.size && epoch_size_ <= kMaxPlanSize);
}

// The ends of the shards of one set, counted from its first sample, and repeated as it is.
std::vector<uint64_t> SamplePlan::shard_ends_of(const Stretch& stretch) const {
  const auto once = shard_ends_within(
      settings_.shard_ends, {.begin = stretch.first, .end = stretch.first + stretch.size});
  std::vector<uint64_t> own;
  for (uint64_t lap = 0; lap < stretch.repeat; ++lap)
    for (const uint64_t end : once) own.push_back(lap * stretch.size + end);
  return own;
}

std::unique_ptr<const SetSequence> SamplePlan::sequence_of_all() const {
  if (stretches_.size() == 1 && !settings_.sets.empty() &&
      !settings_.sets.front().sample_weights.empty())
    return std::make_unique<DrawSequence>(settings_.sets.front().sample_weights, settings_.seed);
  OrderSettings order{.size = epoch_size_,
                      .seed = settings_.seed,
                      .shuffle = settings_.shuffle,
                      .window = settings_.window,
                      .shards_open = settings_.shards_open,
                      .shard_ends = {}};
  uint64_t begin = 0;
  for (const Stretch& stretch : stretches_) {
    if (settings_.shuffle == config::ShuffleMode::kShards)
      for (const uint64_t end : shard_ends_of(stretch)) order.shard_ends.push_back(begin + end);
    begin = stretch.epoch_end;
  }
  return std::make_unique<PassSequence>(order);
}

std::unique_ptr<const SetSequence> SamplePlan::sequence_of(size_t set) const {
  // Each set has a seed of its own: two of the same size would else come in the same order.
  const uint64_t seed = derived_seed(settings_.seed, set);
  const PlannedSet& planned = settings_.sets[set];
  assert(planned.weight > 0 && planned.repeat == 1);
  if (!planned.sample_weights.empty())
    return std::make_unique<DrawSequence>(planned.sample_weights, seed);
  OrderSettings order{.size = planned.size,
                      .seed = seed,
                      .shuffle = settings_.shuffle,
                      .window = settings_.window,
                      .shards_open = settings_.shards_open,
                      .shard_ends = {}};
  if (settings_.shuffle == config::ShuffleMode::kShards)
    order.shard_ends = shard_ends_of(stretches_[set]);
  return std::make_unique<PassSequence>(order);
}

// ---- Asking

uint64_t SamplePlan::position(uint64_t ticket, uint64_t row) const {
  assert(row < settings_.batch);
  const uint64_t global_row = settings_.rank * settings_.batch + row;
  ticket -= settings_.first_ticket;
  if (epoch_tickets_ == 0)
    return settings_.first_epoch * epoch_size_ + ticket * global_batch_ + global_row;
  ticket += settings_.first_epoch * epoch_tickets_;
  const uint64_t place = ticket % epoch_tickets_ * global_batch_ + global_row;
  return ticket / epoch_tickets_ * epoch_size_ +
         place % epoch_size_;  // pad: from the epoch's front
}

PlannedSample SamplePlan::at(uint64_t ticket, uint64_t row) const {
  return stand_in(ticket, row, 0);
}

bool SamplePlan::has_one_sequence() const {
  return !maybe_buckets_ && !maybe_schedule_ && stretches_.size() == 1 &&
         stretches_.front().repeat == 1;
}

void SamplePlan::at(uint64_t ticket, uint64_t first_row, std::span<PlannedSample> planned) const {
  std::array<SetSequence::Use, kAtOnce> uses;
  while (!planned.empty()) {
    const size_t count = std::min(planned.size(), kAtOnce);
    const uint64_t first = has_one_sequence() ? position(ticket, first_row) : 0;
    // Neighbours but where a last batch is filled up from the epoch's front.
    if (!has_one_sequence() || position(ticket, first_row + count - 1) != first + count - 1) {
      for (size_t i = 0; i < count; ++i) planned[i] = at(ticket, first_row + i);
    } else {
      sequences_.front()->at(first, std::span(uses).first(count));
      const uint64_t epoch = first / epoch_size_;
      const uint64_t rest = epoch_size_ - first % epoch_size_;  // of that epoch
      for (size_t i = 0; i < count; ++i)
        planned[i] = {.sample = uses[i].sample,
                      .epoch = i < rest ? epoch : (first + i) / epoch_size_,
                      .pass = uses[i].pass};
    }
    planned = planned.subspan(count);
    first_row += count;
  }
}

PlannedSample SamplePlan::stand_in(uint64_t ticket, uint64_t row, uint64_t attempt) const {
  if (maybe_buckets_) {
    const BucketPlan::Use use =
        maybe_buckets_->at(ticket, settings_.rank * settings_.batch + row, attempt);
    return {.sample = use.sample, .epoch = use.pass, .pass = use.pass};
  }
  const uint64_t place = position(ticket, row);
  const uint64_t epoch = place / epoch_size_;
  if (maybe_schedule_) {
    const Turn turn = maybe_schedule_->at(place);
    const SetSequence::Use use = sequences_[turn.set]->at(turn.position, attempt);
    return {.sample = stretches_[turn.set].first + use.sample, .epoch = epoch, .pass = use.pass};
  }
  const SetSequence::Use use = sequences_.front()->at(place, attempt);
  if (stretches_.size() == 1 && stretches_.front().repeat == 1)
    return {.sample = use.sample, .epoch = epoch, .pass = use.pass};
  const auto stretch = std::upper_bound(
      stretches_.begin(), stretches_.end(), use.sample,
      [](uint64_t sample, const Stretch& each) { return sample < each.epoch_end; });
  const uint64_t before = use.sample - (stretch->epoch_end - stretch->size * stretch->repeat);
  return {.sample = stretch->first + before % stretch->size,
          .epoch = epoch,
          .pass = epoch * stretch->repeat + before / stretch->size};
}

size_t SamplePlan::bucket_of(uint64_t ticket) const {
  return maybe_buckets_ ? maybe_buckets_->bucket_of(ticket) : 0;
}

uint64_t SamplePlan::epoch_of(uint64_t ticket) const {
  if (maybe_buckets_) return maybe_buckets_->epoch_of(ticket);
  const uint64_t since = ticket - settings_.first_ticket;
  return settings_.first_epoch +
         (epoch_tickets_ != 0 ? since / epoch_tickets_ : since * global_batch_ / epoch_size_);
}

}  // namespace stoker::dataset
