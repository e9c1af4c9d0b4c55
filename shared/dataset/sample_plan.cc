#include "shared/dataset/sample_plan.h"

#include <array>
#include <bit>
#include <cassert>

#include "shared/dataset/mix64.h"

namespace stoker::dataset {
namespace {

// Every constant and the number of rounds decide the order of samples in every run there is: never
// change them. The golden values in sample_plan_test.cc hold them.
constexpr uint32_t kRounds = 8;

using RoundKeys = std::array<uint64_t, kRounds>;

RoundKeys round_keys(uint64_t seed, uint64_t epoch) {
  // The seed is mixed before the epoch joins it, so that (seed 1, epoch 2) and (seed 2, epoch 1)
  // have nothing in common.
  const uint64_t base = mix64(mix64(seed + kGolden64) + (epoch + 1) * kGolden64);
  RoundKeys keys;
  for (uint32_t round = 0; round < kRounds; ++round)
    keys[round] = mix64(base + (round + 1) * kGolden64);
  return keys;
}

// A permutation of [0, 2^(2 * half_bits)): each round replaces one half by itself XOR a function of
// the other half.
uint64_t feistel(uint64_t value, uint32_t half_bits, const RoundKeys& keys) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits;
  uint64_t right = value & mask;
  for (const uint64_t key : keys) {
    const uint64_t next = left ^ (mix64(right ^ key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

SamplePlan::SamplePlan(const PlanSettings& settings) : settings_(settings) {
  assert(settings.size >= 1 && settings.size <= kMaxPlanSize && "a plan needs at least one sample");
  assert(settings.batch >= 1 && "a batch holds at least one sample");
  half_bits_ = (static_cast<uint32_t>(std::bit_width(settings.size - 1)) + 1) / 2;
}

PlannedSample SamplePlan::at(uint64_t ticket, uint64_t row) const {
  return stand_in(ticket, row, 0);
}

PlannedSample SamplePlan::stand_in(uint64_t ticket, uint64_t row, uint64_t attempt) const {
  assert(row < settings_.batch);
  const uint64_t place = ticket * settings_.batch + row;
  const uint64_t epoch = place / settings_.size;
  const uint64_t position = (place % settings_.size + attempt % settings_.size) % settings_.size;
  return {.sample = permute(epoch, position), .epoch = epoch};
}

uint64_t SamplePlan::epoch_of(uint64_t ticket) const {
  return ticket * settings_.batch / settings_.size;
}

uint64_t SamplePlan::permute(uint64_t epoch, uint64_t position) const {
  if (!settings_.shuffle || settings_.size == 1) return position;
  const RoundKeys keys = round_keys(settings_.seed, epoch);
  // Cycle walking: the network permutes a power of four, less than four times the size. A value
  // outside is put through again until it falls inside, which keeps it a permutation and takes
  // fewer than four turns on average.
  uint64_t value = position;
  do value = feistel(value, half_bits_, keys);
  while (value >= settings_.size);
  return value;
}

}  // namespace stoker::dataset
