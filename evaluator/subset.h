// Subset: which samples of a set are evaluated: all of them, or eval.max_samples, and then the same
// ones each time, so that results of different checkpoints can be compared.
//
// Threads: values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shared/config/run_config.h"

namespace stoker::evaluator {

class Subset {
 public:
  // `size` of a set of `whole`; size <= whole < 2^32 x 2^32 / size.
  Subset(uint64_t size, uint64_t whole, bool is_spread)
      : size_(size), total_(whole), is_evenly_spaced_(is_spread) {}

  uint64_t size() const { return size_; }
  // The number in the set of the i-th, i < size(): ascending, and none twice. Spread, the first is
  // the set's first, and neighbours are whole / size apart, rounded down or up: where a set is
  // sorted by class, each class has its share.
  uint64_t sample(uint64_t i) const { return is_evenly_spaced_ ? i * total_ / size_ : i; }
  // Of a sample of the whole set.
  bool contains(uint64_t sample) const {
    if (!is_evenly_spaced_) return sample < size_;
    const uint64_t i = (sample * size_ + total_ - 1) / total_;  // the first at or past it
    return i < size_ && this->sample(i) == sample;
  }

 private:
  uint64_t size_;
  uint64_t total_;
  bool is_evenly_spaced_;
};

inline Subset make_subset(const config::EvalConfig& config, uint64_t whole) {
  const uint64_t size = std::min(config.max_samples.value_or(whole), whole);
  return {size, whole, config.subset == config::SampleSubset::kEvenlySpaced && size < whole};
}

}  // namespace stoker::evaluator
