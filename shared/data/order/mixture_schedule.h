// MixtureSchedule: which set of a mixture each position of an endless sequence takes its sample
// from.
//
// The sequence is cut into blocks of equal length. Every block has the same number of positions for
// a set, its quota, in an order of its own: so that the shares are exact after every block, and no
// set is crowded out for long. The length is the smallest up to kMaxBlockLength that gives every
// weight a whole number; weights for which there is none are rounded to parts of kMaxBlockLength, and
// every set gets one at least.
//
// Threads: immutable after construction.
#pragma once

#include <cstdint>
#include <vector>

namespace stoker::data::order {

inline constexpr uint64_t kMaxBlockLength = 10000;

struct MixtureSlot {
  uint64_t component = 0;  // number of the set in the mixture
  uint64_t position = 0;   // how many of its samples were taken before
};

class MixtureSchedule {
 public:
  // At least one weight and at most kMaxBlockLength; all above 0 and finite.
  MixtureSchedule(const std::vector<double>& weights, uint64_t seed);

  MixtureSlot at(uint64_t position) const;
  uint64_t block() const { return ends_.back(); }  // positions
  // Positions of a block for each set.
  std::vector<uint64_t> quotas() const;

 private:
  const uint64_t seed_;
  std::vector<uint64_t> ends_;  // sums of the quotas
};

}  // namespace stoker::data::order
