// SequenceTestData: sequences for tests of lengths; each time step contains the number of its
// sample.
//
// Threads: as Dataset.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shared/data/dataset.h"

namespace stoker::data::testing {

class SequenceTestData final : public Dataset {
 public:
  SequenceTestData(uint64_t max_length, std::vector<uint64_t> lengths)
      : lengths_(std::move(lengths)),
        info_{.size = lengths_.size(),
              .fingerprint = "made",
              .spec = {{.name = "input",
                        .dtype = DType::kF32,
                        .shape = {static_cast<int64_t>(max_length)}},
                       {.name = "length", .dtype = DType::kI64, .shape = {}}},
              .max_length = max_length,
              .length_tensors = {0}} {}

  // sizes[i] samples of length i + 1, interleaved.
  static SequenceTestData of_sizes(std::vector<uint64_t> sizes) {
    std::vector<uint64_t> lengths;
    const uint64_t max_length = sizes.size();
    while (std::ranges::any_of(sizes, [](uint64_t left) { return left > 0; }))
      for (size_t i = 0; i < sizes.size(); ++i) {
        if (sizes[i] == 0) continue;
        --sizes[i];
        lengths.push_back(i + 1);
      }
    return {max_length, std::move(lengths)};
  }

  const DatasetInfo& info() const override { return info_; }
  SampleSource source(uint64_t) const override { return {}; }
  uint64_t length(uint64_t sample) const override { return lengths_[sample]; }
  Status read(uint64_t sample, const RandomKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    const std::span positions(reinterpret_cast<float*>(outputs[0].data()),
                              outputs[0].size() / sizeof(float));
    std::ranges::fill(positions, 0.0F);
    std::ranges::fill(positions.first(lengths_[sample]), static_cast<float>(sample));
    *reinterpret_cast<int64_t*>(outputs[1].data()) = static_cast<int64_t>(lengths_[sample]);
    return {};
  }

 private:
  const std::vector<uint64_t> lengths_;
  const DatasetInfo info_;
};

}  // namespace stoker::data::testing
