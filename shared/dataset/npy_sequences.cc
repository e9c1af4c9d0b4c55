#include "shared/dataset/npy_sequences.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>
#include <vector>

#include "shared/dataset/npy_arrays.h"
#include "shared/dataset/npy_values.h"
#include "shared/dataset/sequence_layout.h"

namespace stoker::dataset {
namespace {

class NpySequences final : public NpyArrays {
 public:
  NpySequences(std::string fingerprint, NpyIndex index, SampleRange range)
      : NpyArrays(std::move(fingerprint), index, range),
        lengths_(std::move(index.lengths)),
        spec_(spec_of_length(max_length())) {}

  const std::vector<TensorSpec>& spec() const override { return spec_; }
  uint64_t max_length() const override { return input().layout().row.front(); }
  uint64_t length(uint64_t sample) const override { return lengths_[row_index(sample)]; }
  std::vector<TensorSpec> spec_of_length(uint64_t length) const override {
    std::vector<int64_t> shape{static_cast<int64_t>(length)};
    const auto& row = input().layout().row;
    for (size_t i = 1; i < row.size(); ++i) shape.push_back(static_cast<int64_t>(row[i]));
    if (row.size() == 1) shape.push_back(1);
    return {{.name = "input", .dtype = DType::kF32, .shape = std::move(shape)},
            {.name = "length", .dtype = DType::kI64, .shape = {}},
            answer_spec(length)};
  }

  Status read(uint64_t sample, const RandomKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == 3);
    const uint64_t row = row_index(sample);
    const uint64_t own = lengths_[row];
    const auto filled = static_cast<size_t>(own * values_per_step() * sizeof(float));
    assert(filled <= outputs[0].size());
    STOKER_RETURN_IF_ERROR(read_npy_floats(input(), row, outputs[0].first(filled)));
    std::ranges::fill(outputs[0].subspan(filled), std::byte{0});
    const auto length = static_cast<int64_t>(own);
    std::memcpy(outputs[1].data(), &length, sizeof length);
    if (classes() == 0) return read_npy_floats(target_array(), row, outputs[2]);
    if (target_array().layout().row_elements() == 1)
      return read_npy_class(target_array(), row, classes(), outputs[2]);
    return read_step_labels(row, own, outputs[2]);
  }

  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    const uint64_t row = row_index(sample);
    input().prefetch(row, lengths_[row] * values_per_step(), bytes);
    if (classes() > 0 && has_label_per_step())
      target_array().prefetch(row, lengths_[row], bytes);
    else
      target_array().prefetch(row, bytes);
  }

 private:
  uint64_t values_per_step() const { return input().layout().row_elements() / max_length(); }
  bool has_label_per_step() const { return target_array().layout().row_elements() == max_length(); }

  TensorSpec answer_spec(uint64_t length) const {
    const auto numbers = static_cast<int64_t>(target_array().layout().row_elements());
    if (classes() == 0) return {.name = "target", .dtype = DType::kF32, .shape = {numbers}};
    if (numbers == 1) return {.name = "label", .dtype = DType::kI64, .shape = {}};
    const int64_t labels = has_label_per_step() ? static_cast<int64_t>(length) : numbers;
    return {.name = "labels", .dtype = DType::kI64, .shape = {labels}};
  }

  Status read_step_labels(uint64_t row, uint64_t own, std::span<std::byte> out) const {
    const size_t filled = has_label_per_step() ? own * sizeof(int64_t) : out.size();
    STOKER_RETURN_IF_ERROR(read_npy_classes(target_array(), row, classes(), out.first(filled)));
    for (size_t at = filled; at < out.size(); at += sizeof kPaddedLabel)
      std::memcpy(out.data() + at, &kPaddedLabel, sizeof kPaddedLabel);
    return {};
  }

  const std::vector<uint64_t> lengths_;
  const std::vector<TensorSpec> spec_;
};

}  // namespace

std::unique_ptr<Dataset> make_npy_sequences(std::string fingerprint, NpyIndex index,
                                            SampleRange range) {
  return std::make_unique<NpySequences>(std::move(fingerprint), std::move(index), range);
}

}  // namespace stoker::dataset
