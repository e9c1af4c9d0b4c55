// SamplePlan: which samples a batch holds, as a pure function.
//
// Ticket t is the t-th micro-batch of the run; row i of it is position p = t * batch + i of one
// endless sequence: epoch e = p / size, sample = permutation_e(p mod size). The permutation is
// pseudo-random with O(1) memory and time (a small Feistel network with cycle walking, keyed by
// seed and epoch), so any ticket, past or future, costs the same, resume needs one number, and the
// number of readers changes nothing. Each sample appears exactly once per epoch; a batch may span
// two epochs.
//
// Threads: immutable after construction; no allocation.
#pragma once

#include <cstdint>

namespace stoker::dataset {

inline constexpr uint64_t kMaxPlanSize = uint64_t{1} << 62;

struct PlanSettings {
  uint64_t size = 1;   // samples of the data set; at most kMaxPlanSize
  uint64_t batch = 1;  // samples a ticket
  uint64_t seed = 1;
  bool shuffle = true;  // false: the samples in order
};

struct PlannedSample {
  uint64_t sample = 0;
  uint64_t epoch = 0;
};

class SamplePlan {
 public:
  explicit SamplePlan(const PlanSettings& settings);

  const PlanSettings& settings() const { return settings_; }
  // The sample for row `row` of ticket `ticket`.
  PlannedSample at(uint64_t ticket, uint64_t row) const;
  // What takes its place when it and the `attempt - 1` stand-ins before could not be read: the
  // attempt-th sample that follows it in the same epoch's permutation (wrapping round). attempt
  // >= 1.
  PlannedSample stand_in(uint64_t ticket, uint64_t row, uint64_t attempt) const;
  uint64_t epoch_of(uint64_t ticket) const;  // of its first row

 private:
  uint64_t permute(uint64_t epoch, uint64_t position) const;

  PlanSettings settings_;
  uint32_t half_bits_ = 0;  // the network permutes [0, 2^(2 * half_bits_))
};

}  // namespace stoker::dataset
