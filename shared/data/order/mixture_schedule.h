// MixtureSchedule: the dataset of each position in the infinite sequence of a mixture.
//
// The sequence consists of blocks of equal length. Every block has a fixed number of positions for
// each dataset, its quota, in an order that differs per block. So the fractions are exact after
// every block, and no dataset is absent for long. The block length is the smallest up to
// kMaxBlockLength for which all quotas are integers. If there is none, the weights are rounded to
// multiples of 1 / kMaxBlockLength, with a quota of at least 1.
//
// Threads: immutable after construction.
#pragma once

#include <cstdint>
#include <vector>

namespace stoker::data::order {

inline constexpr uint64_t kMaxBlockLength = 10000;

struct MixtureSlot {
  uint64_t component = 0;  // index of the dataset in the mixture
  uint64_t position = 0;   // number of earlier positions of the same dataset
};

class MixtureSchedule {
 public:
  // 1 to kMaxBlockLength weights, all finite and above 0.
  MixtureSchedule(const std::vector<double>& weights, uint64_t seed);

  MixtureSlot at(uint64_t position) const;
  uint64_t block() const { return ends_.back(); }  // positions
  // Number of positions in a block, for each dataset.
  std::vector<uint64_t> quotas() const;

 private:
  const uint64_t seed_;
  std::vector<uint64_t> ends_;  // cumulative quotas
};

}  // namespace stoker::data::order
