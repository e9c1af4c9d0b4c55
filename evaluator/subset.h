// Subset: selects the evaluated samples of a dataset: all, or eval.max_samples of them. The
// selection is the same for every checkpoint, so that results are comparable.
//
// Threads: values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shared/config/run_config.h"

namespace stoker::evaluator {

class Subset {
 public:
  // Selects `size` of `whole` samples; size <= whole, and size * whole < 2^64.
  Subset(uint64_t size, uint64_t whole, bool is_spread)
      : size_(size), total_(whole), is_evenly_spaced_(is_spread) {}

  uint64_t size() const { return size_; }
  // Dataset index of the i-th selected sample, i < size(); strictly ascending. If evenly spaced,
  // the first is sample 0 and neighbors are whole / size apart, rounded down or up, so that in a
  // dataset sorted by class each class is represented.
  uint64_t sample(uint64_t i) const { return is_evenly_spaced_ ? i * total_ / size_ : i; }
  // Whether the sample with this dataset index is selected.
  bool contains(uint64_t sample) const {
    if (!is_evenly_spaced_) return sample < size_;
    const uint64_t i = (sample * size_ + total_ - 1) / total_;  // first selected one >= sample
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
